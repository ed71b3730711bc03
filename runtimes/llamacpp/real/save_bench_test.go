//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"os"
	"testing"
	"unsafe"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// BenchmarkSave saves a long sequence again: unchanged, and after a turn of 32 tokens; in a context of its own, and in
// one buffer with another sequence that is empty. "read" is what llama.cpp was asked for. The rows are made up: no prompt is evaluated.
//
//	go test ./runtimes/llamacpp/real -run - -bench BenchmarkSave -benchtime 4x -timeout 20m
func BenchmarkSave(b *testing.B) {
	_, api := library(b)
	for _, size := range []struct {
		name   string
		path   string
		gguf   func() []byte
		tokens int
	}{
		{"35MB", os.Getenv("DORMOUSE_LLAMA_SMOL"), nil, 1536},
		{"500MB", "", func() []byte { return ggufgen.LLaMA(1, 60, 256) }, 4096},
	} {
		b.Run(size.name, func(b *testing.B) {
			for _, sequences := range []int{1, 2} {
				if size.path == "" && size.gguf == nil {
					b.Log("SKIPPED, a state of 35 MB: DORMOUSE_LLAMA_SMOL is not set")
					continue
				}
				o := llama.ContextOptions{Tokens: size.tokens + 1024, Batch: 512, MicroBatch: 512, Threads: 2, Sequences: sequences, Unified: true}
				counting, read := *api, 0
				get := api.StateGet
				counting.StateGet = func(c uintptr, dst *byte, n uintptr, sequence int32, flags uint32) uintptr {
					read += int(n)
					return get(c, dst, n, sequence, flags)
				}
				var r *rig
				if size.gguf == nil {
					r = rigFor(b, loaded.lib, &counting, size.path, o, db.Options{})
				} else {
					r = newRig(b, size.gguf(), o, db.Options{})
					r.api = &counting
				}
				c := r.context()
				s := r.attach(c, nil)
				r.fill(c, size.tokens)
				tokens := make([]kv.Token, size.tokens, size.tokens+1024)
				for i := range tokens {
					tokens[i] = kv.Token(i % 100)
				}
				save := func() {
					b.Helper()
					if r, err := s.Save(context.Background(), kv.Tokens(tokens...), 0); err != nil || r.Tokens != len(tokens) {
						b.Fatal(r, err)
					}
				}
				save()
				for _, turn := range []int{0, 32} {
					name := map[int]string{0: "unchanged", 32: "turn"}[turn] + map[int]string{1: "/alone", 2: "/one buffer"}[sequences]
					b.Run(name, func(b *testing.B) {
						if turn > 0 { // each run begins with the same tokens, and goes on with others
							tokens = tokens[:size.tokens]
							r.api.SequenceRemove(r.api.GetMemory(c.Pointer()), 0, int32(size.tokens), -1)
						}
						read = 0
						for range b.N {
							b.StopTimer()
							from := len(tokens)
							for range turn {
								tokens = append(tokens, kv.Token(b.N))
							}
							if turn > 0 {
								if err := s.Prefill(context.Background(), kv.Tokens(tokens...), from, 0); err != nil {
									b.Fatal(err)
								}
							}
							b.StartTimer()
							save()
						}
						b.ReportMetric(float64(read)/float64(b.N)/1e6, "MB-read/op")
					})
				}
				c.Close()
			}
		})
	}
}

// fill gives sequence 0 rows of small numbers.
func (r *rig) fill(c *llama.Context, n int) {
	r.t.Helper()
	if err := c.Decode([]kv.Token{1}, 0, 0); err != nil {
		r.t.Fatal(err)
	}
	one := make([]byte, r.api.StateSize(c.Pointer(), 0, 0))
	r.api.StateGet(c.Pointer(), unsafe.SliceData(one), uintptr(len(one)), 0, 0)
	f, err := state.Learn(one, 1)
	if err != nil {
		r.t.Fatal(err)
	}
	st, blob := f.Build(nil, 0, []state.Cells{state.Span(0, 0, n)})
	for l := range st.Sections[0].Layers() {
		for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
			for _, p := range st.Sections[0].Rows(l, role).Pieces {
				mem := p.Mem[:p.Count*f.Sections[0].Layers[l].K.RowBytes]
				for i := range mem {
					mem[i] = byte(i*7+i>>9+l)&0x0f | 0x20 // f16 of 0.008 to 0.016
				}
			}
		}
	}
	r.api.SequenceRemove(r.api.GetMemory(c.Pointer()), 0, -1, -1)
	if got := r.api.StateSet(c.Pointer(), unsafe.SliceData(blob), uintptr(len(blob)), 0, 0); int(got) != len(blob) {
		r.t.Fatalf("llama.cpp took %d of %d bytes", got, len(blob))
	}
}
