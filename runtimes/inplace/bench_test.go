package inplace

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/internal/tiny"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// What an access costs without a lock, in a ring of 1,024 cells, and under the shared one, in a ring of one cell more: a turn is pinned
// for reading and let go; a turn is claimed, committed and given back. The article's price of a lock is 10 to 20 us.
func BenchmarkAccess(b *testing.B) {
	for _, cells := range []int{LockFree, LockFree + 1} {
		name := map[bool]string{false: "lock-free", true: "shared-lock"}[cells > LockFree]
		newRing := func(b *testing.B) (*Ring, *Turn) {
			r, err := NewMemory(Shape{Cells: cells, Layers: 1, RowBytes: 64})
			if err != nil {
				b.Fatal(err)
			}
			rows, err := r.Claim(100)
			if err != nil {
				b.Fatal(err)
			}
			return r, r.Commit(Key{}, 0, rows)
		}
		b.Run("read/"+name, func(b *testing.B) {
			r, t := newRing(b)
			for b.Loop() {
				if !r.Pin(t) {
					b.Fatal("gone")
				}
				r.Unpin(t)
			}
		})
		b.Run(fmt.Sprintf("read-by-%d/%s", runtime.GOMAXPROCS(0), name), func(b *testing.B) {
			r, t := newRing(b)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if !r.Pin(t) {
						b.Error("gone")
					}
					r.Unpin(t)
				}
			})
		})
		b.Run("write-a-row/"+name, func(b *testing.B) {
			r, _ := newRing(b)
			for b.Loop() {
				rows, err := r.Claim(1)
				if err != nil {
					b.Fatal(err)
				}
				t := r.Commit(Key{}, 0, rows)
				r.Dissolve(t)
				r.Release(rows)
			}
		})
	}
}

// bench is a runtime with two conversations of 1,500 tokens in its ring: 100 of facts, and 14 turns of 100. The model has 9.3 million
// weights and 8 KiB a token; its rows were not computed, which takes as long to read.
type bench struct {
	*Runtime
	store *db.Store
	o     Options
	p     [2]kv.Prompt
}

const resident, facts, turn = 1500, 100, 100

func newBench(b *testing.B) *bench {
	b.Helper()
	dir := memdir.Dir(b)
	store, err := db.Open(ctx, filepath.Join(dir, "store"), db.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close() })
	m, err := tiny.New(tiny.Default(tiny.NewTokenizer()), 1)
	if err != nil {
		b.Fatal(err)
	}
	k := &bench{store: store, o: Options{Ring: filepath.Join(dir, "ring"), Cells: 4096, Codec: quant.Raw}}
	if k.Runtime, err = New(ctx, store, m, k.o); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { k.Close() })
	for seq := range k.p {
		cells, err := k.ring.Claim(resident)
		if err != nil {
			b.Fatal(err)
		}
		for pos, c := range cells {
			for l := range m.Layers {
				for i := range k.cache.RowBytes / 2 {
					k.ring.row(k.ring.K(l), c)[2*i+1], k.ring.row(k.ring.V(l), c)[2*i+1] = 0x30|byte(pos+i)&3, 0x30|byte(pos-i)&3 // 0.125 to 1
				}
			}
			k.give(seq, pos, c)
			k.p[seq].Tokens = append(k.p[seq].Tokens, kv.Token(pos*(seq+3)%m.Vocabulary))
		}
		if err := k.Store(ctx, k.p[seq], seq, kv.Range{End: resident}); err != nil {
			b.Fatal(err)
		}
	}
	return k
}

// view shows sequence 2 a conversation's facts, every other turn of it, and its last row.
func (k *bench) view(seq int) error {
	if err := k.Remove(2, kv.Range{End: kv.MaxTokens}); err != nil {
		return err
	}
	if err := k.Copy(seq, 2, kv.Range{End: facts}); err != nil {
		return err
	}
	for start := facts; start < resident-1; start += 2 * turn {
		if err := k.Copy(seq, 2, kv.Range{Start: start, End: min(start+turn, resident-1)}); err != nil {
			return err
		}
	}
	return k.Copy(seq, 2, kv.Range{Start: resident - 1, End: resident})
}

// The mask of a step: made whole, from turns that are visible and turns that are not (the article's 0.3 ms), and advanced by one token.
func BenchmarkMask(b *testing.B) {
	b.Run("whole", func(b *testing.B) {
		k := newBench(b)
		for b.Loop() {
			if err := k.view(0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("next", func(b *testing.B) {
		v := tiny.NewVisible(resident)
		pos := 0
		for b.Loop() {
			v.Set(pos, pos)
			if pos++; pos == resident {
				pos = 0
			}
		}
	})
}

// From one conversation to another of 1,500 tokens. Both are in the ring: the switch alone (the article's 12 ms), and with a token, beside a
// token without a switch. The other one is in the store, or in the file of a process that was killed: "reload", "map again". And computed
// anew, per token.
func BenchmarkSwitch(b *testing.B) {
	token := func(b *testing.B, k *bench, seq int) {
		if err := k.Decode(ctx, []kv.Step{{Token: 1, Pos: resident, Seq: seq, Logits: true}}); err != nil {
			b.Fatal(err)
		}
		if err := k.Remove(seq, kv.Range{Start: resident, End: resident + 1}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("alone", func(b *testing.B) {
		k := newBench(b)
		for i := 0; b.Loop(); i++ {
			if err := k.view(i % 2); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("token-after-a-switch", func(b *testing.B) {
		k := newBench(b)
		for i := 0; b.Loop(); i++ {
			token(b, k, i%2)
		}
	})
	b.Run("token-without", func(b *testing.B) {
		k := newBench(b)
		for b.Loop() {
			token(b, k, 0)
		}
	})
	b.Run("reload", func(b *testing.B) {
		k := newBench(b)
		b.SetBytes(int64(resident * k.cache.TokenBytes()))
		for b.Loop() {
			if err := k.Remove(0, kv.Range{End: resident}); err != nil {
				b.Fatal(err)
			}
			if n, err := k.Load(ctx, k.p[0], 0, []kv.Range{{End: resident}}); err != nil || n != resident {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("map-again", func(b *testing.B) {
		k := newBench(b)
		b.SetBytes(int64(2 * resident * k.cache.TokenBytes()))
		for b.Loop() {
			if err := k.Close(); err != nil {
				b.Fatal(err)
			}
			var err error
			if k.Runtime, err = New(ctx, k.store, k.tiny, k.o); err != nil {
				b.Fatal(err)
			}
			for seq := range k.p {
				if n, err := k.Load(ctx, k.p[seq], seq, []kv.Range{{End: resident}}); err != nil || n != resident || k.stats.Restored > 0 {
					b.Fatal(n, err, k.stats)
				}
			}
		}
	})
	b.Run("compute-a-token", func(b *testing.B) {
		k := newBench(b)
		for i := 0; b.Loop(); i++ {
			var steps []kv.Step
			for pos := range 64 {
				steps = append(steps, kv.Step{Token: 1, Pos: resident + pos, Seq: 0})
			}
			if err := k.Decode(ctx, steps); err != nil {
				b.Fatal(err)
			}
			if err := k.Remove(0, kv.Range{Start: resident, End: resident + 64}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(64*b.N), "ns/token")
	})
}
