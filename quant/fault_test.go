//go:build linux || darwin

package quant

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
)

// A read fault in the middle of decoding leaves nothing behind that a later encoding or decoding would use.
func TestFaultWhileDecoding(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	half := make([]byte, 600)
	for i := range half {
		half[i] = byte(rng.NormFloat64() * 12)
	}
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
