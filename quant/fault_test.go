//go:build linux || darwin

package quant

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A read fault in the middle of decoding leaves nothing behind that a later encoding or decoding would use.
func TestFaultWhileDecoding(t *testing.T) {
	half := skewed(600) // twice: there is something to compress for each
	src := append(half, half...)
	for _, c := range []Compression{Zstd, S2, Huff0} {
		t.Run(c.String(), func(t *testing.T) {
			encode := func() []byte {
				b, got := compressTail(bytes.Clone(src), 0, c)
				if got != c {
					t.Fatalf("the test's bytes are not worth compressing by %s", c)
				}
				return b
			}
			want := encode()
			stream := want[compressedHeaderBytes:]
			mem := newGuarded(t, 1)
			for cut := range stream {
				at := mem[len(mem)-cut:]
				copy(at, stream[:cut])
				dst := make([]byte, len(src))
				func() {
					defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
					defer func() {
						if cut%16 == 0 {
							runtime.GC() // walks the stack below the panic
						}
						if _, ok := recover().(runtime.Error); !ok {
							t.Fatalf("decoding %d of %d bytes met no fault", cut, len(stream))
						}
					}()
					decompress(dst, c, at[:len(stream):len(stream)])
				}()
				if !bytes.Equal(encode(), want) {
					t.Fatalf("what was encoded after a fault at byte %d differs", cut)
				}
				if err := decompress(dst, c, stream); err != nil || !bytes.Equal(dst, src) {
					t.Fatalf("what was decoded after a fault at byte %d differs: %v", cut, err)
				}
			}
		})
	}
}

// Memory for rows that faults ends a decoding with an error, whatever the decoder was at, and not the process.
func TestFaultWhileDecodingIntoRows(t *testing.T) {
	tensor := kv.Tensor{Role: kv.RoleK, DType: kv.F16, Width: 32}
	half := skewed(32 * tensor.RowBytes()) // long enough for s2 to have it copied by the runtime
	src := append(half, half...)
	mem := newGuarded(t, 1)
	for _, c := range []Compression{Zstd, S2, Huff0} {
		stored, p, err := Encode(nil, Raw, c, tensor, kv.Packed(0, 64, src), 0)
		if err != nil || p.Compression != c {
			t.Fatal(p.Compression, err)
		}
		for there := 16; there < len(mem); there += 300 {
			rows := kv.Packed(0, 64, mem[len(mem)-there:][:len(src):len(src)])
			func() {
				defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
				defer func() {
					runtime.GC() // walks the stack below the panic
					if _, ok := recover().(runtime.Error); !ok {
						t.Errorf("%s: %d bytes of %d are there, and nothing faulted", c, there, len(src))
					}
				}()
				Decode(rows, tensor, p, stored, 0)
			}()
		}
	}
}

// skewed are n bytes of which those near 0 are the most.
func skewed(n int) []byte {
	rng := rand.New(rand.NewPCG(11, 12))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.NormFloat64() * 12)
	}
	return b
}
