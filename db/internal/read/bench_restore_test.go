package read_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// large is a model whose blocks have 2 MiB of f16: 64 tokens, 16 layers of K and V, 8 heads of 64.
func large() kv.Descriptor {
	d := crashtest.Toy(kv.Descriptor{Name: "large", BlockTokens: 64})
	for layer := range 16 {
		d.Tensors = append(d.Tensors,
			kv.Tensor{Layer: layer, Role: kv.RoleK, DType: kv.F16, Width: 512},
			kv.Tensor{Layer: layer, Role: kv.RoleV, DType: kv.F16, Width: 512})
	}
	return d
}

// noise fills rows of n positions with f16 numbers of one magnitude.
func noise(d kv.Descriptor, n int) kv.Rows {
	rows := make(kv.Rows, len(d.Tensors))
	for i, t := range d.Tensors {
		mem := make([]byte, n*t.RowBytes())
		r := rand.New(rand.NewPCG(uint64(i), 1))
		for j := 0; j+8 <= len(mem); j += 8 {
			x := r.Uint64()
			for k := range 4 {
				mem[j+2*k], mem[j+2*k+1] = byte(x), 0x38|byte(x>>8)&0x83
				x >>= 16
			}
		}
		rows[i] = kv.Packed(0, n, mem)
	}
	return rows
}

// BenchmarkRestore restores 128 blocks of 2 MiB f16 from INT8, beside a copy of as many bytes by as many goroutines.
func BenchmarkRestore(b *testing.B) {
	const n = 128 * 64
	o := storetest.Options()
	o.Budget, o.CheckpointBytes, o.Codec, o.SegmentBytes = 8<<30, 8<<30, 0, 64<<20
	s := storetest.Open(b, b.TempDir(), o)
	d := large()
	m := storetest.Model(b, s, d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, n)}
	src := noise(m.Descriptor(), n)
	if _, err := m.Put(b.Context(), p, src, db.PutOptions{}); err != nil {
		b.Fatal(err)
	}
	dst := noise(m.Descriptor(), n)
	bytes := int64(0)
	for i := range dst {
		bytes += int64(len(dst[i].Pieces[0].Mem))
	}
	b.Run("dormouse", func(b *testing.B) {
		b.SetBytes(bytes)
		b.ReportAllocs()
		for b.Loop() {
			x, err := m.Match(b.Context(), p, db.MatchOptions{})
			if err != nil {
				b.Fatal(err)
			}
			if got, err := x.Restore(b.Context(), dst); err != nil || got.Tokens != n {
				b.Fatal(got, err)
			}
			x.Close()
		}
	})
	for _, g := range []int{1, 2} {
		b.Run(fmt.Sprint("copy ", g), func(b *testing.B) {
			b.SetBytes(bytes)
			for b.Loop() {
				var wait sync.WaitGroup
				for k := range g {
					wait.Go(func() {
						for i := k; i < len(dst); i += g {
							copy(dst[i].Pieces[0].Mem, src[i].Pieces[0].Mem)
						}
					})
				}
				wait.Wait()
			}
		})
	}
	b.Run("copy 2, 64 KiB at a time", func(b *testing.B) { // what a cache of f16 blocks would do
		b.SetBytes(bytes)
		for b.Loop() {
			var wait sync.WaitGroup
			for k := range 2 {
				wait.Go(func() {
					for i := k; i < len(dst); i += 2 {
						for at := 0; at < len(dst[i].Pieces[0].Mem); at += 64 << 10 {
							copy(dst[i].Pieces[0].Mem[at:at+64<<10], src[i].Pieces[0].Mem[at:])
						}
					}
				})
			}
			wait.Wait()
		}
	})
	b.Run("put", func(b *testing.B) {
		b.SetBytes(bytes)
		i := 0
		for b.Loop() {
			i++
			if _, err := m.Put(b.Context(), kv.Prompt{Tokens: crashtest.Tokens(i+1, n)}, src, db.PutOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
