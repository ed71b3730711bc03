//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
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

// BenchmarkAttach attaches to contexts of Gemma 3 270M, whose weights' hash is remembered and whose canary is stored: again and again in one process, and once each in
// processes that begin. The reference is what it cannot do without, the decode of the canary. "rest-ms" is the median of all else, of which
// llama_state_seq_get_data and set_data took "in-get-ms" and "in-set-ms".
//
//	go test ./runtimes/llamacpp/real -run - -bench BenchmarkAttach -benchtime 20x
func BenchmarkAttach(b *testing.B) {
	_, api := library(b)
	path, dir := realModel(b), os.Getenv("DORMOUSE_ATTACH_CHILD")
	if dir != "" {
		fmt.Println("figures", attachIn(b, api, path, dir).line())
		return
	}
	dir = b.TempDir()
	attachIn(b, api, path, dir) // hashes the weights and stores the canary
	b.Run("again", func(b *testing.B) {
		took := medians{}
		for range b.N {
			attachIn(b, api, path, dir).addTo(took)
		}
		took.reportAttach(b)
	})
	b.Run("first", func(b *testing.B) {
		took := medians{}
		for range b.N {
			cmd := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkAttach$", "-test.benchtime=1x")
			cmd.Env = append(os.Environ(), "DORMOUSE_ATTACH_CHILD="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil {
				b.Fatalf("%v\n%s", err, out)
			}
			_, line, found := strings.Cut(string(out), "figures ")
			var f attachFigures
			if _, err := fmt.Sscan(line, &f.all, &f.decode, &f.get, &f.set); !found || err != nil {
				b.Fatalf("no figures: %v\n%s", err, out)
			}
			f.addTo(took)
		}
		took.reportAttach(b)
	})
}

// attachFigures are times of one attach: all of it, and what was spent in the decode, in get_data and in set_data.
type attachFigures struct{ all, decode, get, set time.Duration }

func (f attachFigures) line() string {
	return fmt.Sprintln(int64(f.all), int64(f.decode), int64(f.get), int64(f.set))
}

func (f attachFigures) addTo(m medians) {
	m.add("all", f.all)
	m.add("decode", f.decode)
	m.add("rest", f.all-f.decode)
	m.add("get", f.get)
	m.add("set", f.set)
}

func (m medians) reportAttach(b *testing.B) {
	b.ReportMetric(m.ms("all"), "attach-ms")
	b.ReportMetric(m.ms("decode"), "decode-ms")
	b.ReportMetric(m.ms("rest"), "rest-ms")
	b.ReportMetric(m.ms("get"), "in-get-ms")
	b.ReportMetric(m.ms("set"), "in-set-ms")
	b.ReportMetric(m.ms("all")/m.ms("decode"), "ratio")
}

// attachIn attaches to a new context, with the store and the memo in a folder.
func attachIn(b *testing.B, api *llamacpp.Library, path, dir string) (f attachFigures) {
	timed := func(into *time.Duration) func() {
		start := time.Now()
		return func() { *into += time.Since(start) }
	}
	counting := *api
	counting.StateGet = func(c uintptr, dst *byte, n uintptr, sequence int32, flags uint32) uintptr {
		defer timed(&f.get)()
		return api.StateGet(c, dst, n, sequence, flags)
	}
	counting.StateSet = func(c uintptr, src *byte, n uintptr, sequence int32, flags uint32) uintptr {
		defer timed(&f.set)()
		return api.StateSet(c, src, n, sequence, flags)
	}
	store := kit.OpenStoreAt(b, filepath.Join(dir, "store"), db.Options{})
	m := loadModel(b, loaded.lib, path, false)
	c := newContext(b, m, contextOptions(llama.ContextOptions{Tokens: 2048, Batch: 512, MicroBatch: 512}))
	defer c.Close()
	o := llamacpp.Options{Identity: llamacpp.Identity{Path: path, Memo: filepath.Join(dir, "memo")}, Logger: kit.Quiet,
		Decode: func(tokens []kv.Token, first, sequence int) error {
			defer timed(&f.decode)()
			return c.Decode(tokens, first, sequence)
		}}
	stop := timed(&f.all)
	_, err := llamacpp.Attach(context.Background(), store, &counting, c.Pointer(), o)
	stop()
	if err = errors.Join(err, store.Close()); err != nil {
		b.Fatal(err)
	}
	return f
}
