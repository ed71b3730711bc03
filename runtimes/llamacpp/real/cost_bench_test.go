//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// medians are times by the name of what took them.
type medians map[string][]time.Duration

func (m medians) add(name string, d time.Duration) { m[name] = append(m[name], d) }

// ms is the median in milliseconds.
func (m medians) ms(name string) float64 {
	all := slices.Sorted(slices.Values(m[name]))
	if len(all) == 0 {
		return 0
	}
	return all[len(all)/2].Seconds() * 1e3
}

// BenchmarkRestore restores 35 MB of f16, in turns with llama_state_seq_set_data of the same bytes, which is the reference: into a context of one sequence, where
// the state is handed over whole, and into one buffer of two, where it comes in pieces. Medians: "ratio" is Restore by set_data; "in-set-ms" is what Restore spent inside of
// set_data. The rows are made up: no prompt is evaluated.
//
//	go test ./runtimes/llamacpp/real -run - -bench BenchmarkRestore -benchtime 20x
func BenchmarkRestore(b *testing.B) {
	_, api := library(b)
	path, tokens := os.Getenv("DORMOUSE_LLAMA_SMOL"), 1536
	for _, codec := range []quant.Codec{quant.Q8_0, quant.Raw} {
		for _, sequences := range []int{1, 2} {
			b.Run(fmt.Sprint(codec, map[int]string{1: "/whole", 2: "/pieces"}[sequences]), func(b *testing.B) {
				o := llama.ContextOptions{Tokens: tokens + 512, Batch: 512, MicroBatch: 512, Threads: 1, Sequences: sequences, Unified: true}
				var r *rig
				if path != "" {
					r = rigFor(b, loaded.lib, api, path, o, db.Options{Codec: codec})
				} else {
					r = newRig(b, ggufgen.LLaMA(1, 15, 192), o, db.Options{Codec: codec})
				}
				counting, inSet := *api, time.Duration(0)
				counting.StateSet = func(c uintptr, src *byte, n uintptr, sequence int32, flags uint32) uintptr {
					start := time.Now()
					defer func() { inSet += time.Since(start) }()
					return api.StateSet(c, src, n, sequence, flags)
				}
				r.api = &counting
				c := r.context()
				s := r.attach(c, nil)
				r.fill(c, tokens)
				ids := make([]kv.Token, tokens+1)
				for i := range ids {
					ids[i] = kv.Token(i % 100)
				}
				if _, err := s.Save(context.Background(), kv.Tokens(ids[:tokens]...), 0); err != nil {
					b.Fatal(err)
				}
				blob := make([]byte, api.StateSize(c.Pointer(), 0, 0))
				api.StateGet(c.Pointer(), unsafe.SliceData(blob), uintptr(len(blob)), 0, 0)
				memory := api.GetMemory(c.Pointer())
				took := medians{}
				for range b.N {
					api.SequenceRemove(memory, 0, -1, -1)
					start := time.Now()
					if n := api.StateSet(c.Pointer(), unsafe.SliceData(blob), uintptr(len(blob)), 0, 0); int(n) != len(blob) {
						b.Fatalf("llama.cpp took %d of %d bytes", n, len(blob))
					}
					took.add("set", time.Since(start))

					api.SequenceRemove(memory, 0, -1, -1)
					inSet, start = 0, time.Now()
					got, err := s.Restore(context.Background(), kv.Tokens(ids...), 0)
					took.add("restore", time.Since(start))
					took.add("in set", inSet)
					if err != nil || got.Tokens != tokens {
						b.Fatalf("restored %d tokens of %d: %v %v", got.Tokens, tokens, got.Reason, err)
					}
				}
				b.SetBytes(int64(len(blob)))
				b.ReportMetric(took.ms("set"), "set_data-ms")
				b.ReportMetric(took.ms("restore"), "restore-ms")
				b.ReportMetric(took.ms("in set"), "in-set-ms")
				b.ReportMetric(took.ms("restore")/took.ms("set"), "ratio")
			})
		}
	}
}

// BenchmarkAttach attaches to contexts of Gemma 3 270M, whose weights' hash is remembered and whose canary is stored. The reference is what it cannot do without: the
// decode of eight tokens. "rest-ms" is the median of all else, and "in-get-ms" and "in-set-ms" what of it was spent inside of llama_state_seq_get_data and set_data.
//
//	go test ./runtimes/llamacpp/real -run - -bench BenchmarkAttach -benchtime 20x
func BenchmarkAttach(b *testing.B) {
	_, api := library(b)
	path := realModel(b)
	counting, inGet, inSet, inDecode := *api, time.Duration(0), time.Duration(0), time.Duration(0)
	counting.StateGet = func(c uintptr, dst *byte, n uintptr, sequence int32, flags uint32) uintptr {
		start := time.Now()
		defer func() { inGet += time.Since(start) }()
		return api.StateGet(c, dst, n, sequence, flags)
	}
	counting.StateSet = func(c uintptr, src *byte, n uintptr, sequence int32, flags uint32) uintptr {
		start := time.Now()
		defer func() { inSet += time.Since(start) }()
		return api.StateSet(c, src, n, sequence, flags)
	}
	r := rigFor(b, loaded.lib, &counting, path, llama.ContextOptions{Tokens: 2048, Batch: 512, MicroBatch: 512, Threads: 1}, db.Options{})
	took := medians{}
	first := true
	for i := range b.N + 1 {
		c := r.context()
		inGet, inSet, inDecode = 0, 0, 0
		b.StartTimer()
		start := time.Now()
		r.attach(c, func(o *llamacpp.Options) {
			o.Decode = func(tokens []kv.Token, first, sequence int) error {
				start := time.Now()
				defer func() { inDecode += time.Since(start) }()
				return c.Decode(tokens, first, sequence)
			}
		})
		all := time.Since(start)
		b.StopTimer()
		c.Close()
		if i == 0 && first { // it hashes the weights and stores the canary
			first = false
			b.ResetTimer()
			continue
		}
		took.add("all", all)
		took.add("decode", inDecode)
		took.add("get", inGet)
		took.add("set", inSet)
		took.add("rest", all-inDecode)
	}
	b.ReportMetric(took.ms("all"), "attach-ms")
	b.ReportMetric(took.ms("decode"), "decode-ms")
	b.ReportMetric(took.ms("rest"), "rest-ms")
	b.ReportMetric(took.ms("get"), "in-get-ms")
	b.ReportMetric(took.ms("set"), "in-set-ms")
}
