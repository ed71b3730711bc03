//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// A context has one session: the last one that was attached, to whatever store. What the one before it knew is not true any more.
func TestOneSessionForAContext(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, ggufgen.LLaMA(1, 3, 64), llama.ContextOptions{Sequences: 2, Unified: true}, db.Options{Codec: quant.Raw})
	other := r.withStore(db.Options{Codec: quant.Raw})
	a, b := kv.Tokens(randomTokens(1, 100)...), kv.Tokens(randomTokens(2, 100)...)
	calls := map[string]func(s *llamacpp.Session) error{
		"Restore": func(s *llamacpp.Session) error { _, err := s.Restore(ctx, a, 1); return err },
		"Prefill": func(s *llamacpp.Session) error { return s.Prefill(ctx, a, 0, 1) },
		"Save":    func(s *llamacpp.Session) error { _, err := s.Save(ctx, a, 0); return err },
		"Capture": func(s *llamacpp.Session) error { return s.Capture(ctx, a, 0) },
		"Reset":   func(s *llamacpp.Session) error { return s.Reset(0) },
		"Recheck": func(s *llamacpp.Session) error { return s.Recheck(ctx) },
		"adapters": func(s *llamacpp.Session) error {
			return s.SetAdapters(ctx)
		},
		"Truncate": func(s *llamacpp.Session) error { return s.Truncate(0, 3) },
		"Runtime": func(s *llamacpp.Session) error {
			_, err := s.Runtime(llamacpp.RuntimeOptions{Decode: func([]kv.Step) error { return nil }, Logits: func(int) []float32 { return nil }})
			return err
		},
	}
	for _, next := range []*rig{r, other} {
		c := r.context()
		first := r.attach(c, nil)
		if err := first.Prefill(ctx, a, 0, 0); err != nil {
			t.Fatal(err)
		}
		second := next.attach(c, nil) // leaves the tokens
		for name, call := range calls {
			if err := call(first); !errors.Is(err, llamacpp.ErrReplaced) {
				t.Errorf("%s of the first session: %v", name, err)
			}
		}
		c.Clear()
		kit.EvaluateAndSave(t, second, b, 0, 0)
		if _, err := r.tryAttach(c, func(o *llamacpp.Options) { o.Path = "nowhere" }); err == nil {
			t.Fatal("attached to nothing")
		}
		if _, err := second.Save(ctx, b, 0); err != nil { // an Attach that failed ends nobody
			t.Error(err)
		}
		first.Trim()
		c.Close()
	}

	// The address of a context that was freed comes again.
	seen := map[uintptr]*llamacpp.Session{}
	for again := 0; again == 0; {
		c := r.context()
		s := r.attach(c, nil)
		if old := seen[c.Pointer()]; old != nil {
			again++
			if _, err := old.Save(ctx, a, 0); !errors.Is(err, llamacpp.ErrReplaced) {
				t.Error(err)
			}
		}
		kit.EvaluateAndSave(t, s, a, 0, 0)
		seen[c.Pointer()] = s
		c.Close()
		if len(seen) > 200 {
			t.Skip("SKIPPED: no address came again")
		}
	}

	// A Runtime is its session's.
	c := r.context()
	first := r.attach(c, nil)
	rt, err := first.Runtime(llamacpp.RuntimeOptions{Decode: c.DecodeSteps, Logits: c.Logits})
	if err != nil {
		t.Fatal(err)
	}
	r.attach(c, nil)
	if err := rt.Decode(ctx, []kv.Step{{Token: 1}}); !errors.Is(err, llamacpp.ErrReplaced) {
		t.Error(err)
	}
	if err := rt.Store(ctx, a, 0, kv.Range{Start: 0, End: 10}); !errors.Is(err, llamacpp.ErrReplaced) {
		t.Error(err)
	}
}

// The file of a model that is mapped is the weights in use. Whatever becomes of it, what is restored has the logits of a cold run, and a file that was put back is found.
func TestModelFileChanges(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: only Linux tells what is mapped")
	}
	lib, api := library(t)
	ctx := context.Background()
	good, bad := ggufgen.LLaMA(1, 3, 64), ggufgen.LLaMA(2, 3, 64)
	tokens := randomTokens(1, 129)
	prompt := kv.Tokens(tokens...)
	overwrite := func(path string, b []byte) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
		later := time.Now().Add(time.Second) // coarse clocks
		if err := os.Chtimes(path, later, later); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name    string
		do      func(path string)
		refused bool // calls are, until the file is put back
		rows    bool // what the sequences hold is stored afterwards
	}{
		{"overwritten", func(path string) { overwrite(path, bad) }, true, false},
		{"rights changed", func(path string) { os.Chmod(path, 0o600) }, false, true},
		{"another name", func(path string) { os.Link(path, path+".link") }, false, true},
		{"touched", func(path string) { os.Chtimes(path, time.Now().Add(time.Hour), time.Now().Add(time.Hour)) }, false, false},
		{"another file in its place", func(path string) {
			os.WriteFile(path+".new", bad, 0o644)
			os.Rename(path+".new", path)
		}, false, true},
		{"removed", func(path string) { os.Remove(path) }, false, true},
		{"a link that leads elsewhere", func(path string) {
			os.WriteFile(path+".other", bad, 0o644)
			os.Symlink(path+".other", path+".link")
			os.Rename(path+".link", path)
		}, false, true},
		{"a link whose file is overwritten", func(path string) {
			to, _ := filepath.EvalSymlinks(path)
			overwrite(to, bad)
		}, true, false},
		{"a link that leads elsewhere, and its file is overwritten", func(path string) {
			to, _ := filepath.EvalSymlinks(path)
			os.WriteFile(path+".other", bad, 0o644)
			os.Symlink(path+".other", path+".link")
			overwrite(to, bad)
			os.Rename(path+".link", path)
		}, true, false},
		{"overwritten and put back unseen", func(path string) {
			overwrite(path, bad)
			overwrite(path, good)
		}, false, false},
	} {
		path := filepath.Join(t.TempDir(), "model.gguf")
		at := path
		if strings.HasPrefix(x.name, "a link") {
			at += ".blob"
			if err := os.Symlink(at, path); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(at, good, 0o644); err != nil {
			t.Fatal(err)
		}
		r := rigFor(t, lib, api, path, llama.ContextOptions{Sequences: 2, Unified: true}, db.Options{Codec: quant.Raw})
		cold := r.evaluated(prompt, batchTokens, 0)
		c := r.context()
		s := r.attach(c, nil)
		kit.EvaluateAndSave(t, s, prompt, 0, 0)
		x.do(path)
		longer := kv.Tokens(append(tokens[:129:129], randomTokens(5, 40)...)...)
		r.decode(c, longer.Tokens, 129, batchTokens)
		_, err := s.Save(ctx, longer, 0)
		if (err == nil) != x.rows {
			t.Errorf("%s: Save of what the sequence holds: %v", x.name, err)
		}
		got, err := s.Restore(ctx, prompt, 1)
		switch {
		case x.refused && (!errors.Is(err, llamacpp.ErrIdentity) || got.Tokens > 0):
			t.Errorf("%s: Restore: %+v %v", x.name, got, err)
		case !x.refused && (err != nil || got.Tokens != 128):
			t.Errorf("%s: Restore: %+v %v", x.name, got, err)
		}
		if x.refused {
			if err := s.Prefill(ctx, kv.Tokens(randomTokens(7, 50)...), 0, 1); !errors.Is(err, llamacpp.ErrIdentity) {
				t.Errorf("%s: Prefill: %v", x.name, err)
			}
			if err := s.Recheck(ctx); !errors.Is(err, llamacpp.ErrIdentity) {
				t.Errorf("%s: Recheck: %v", x.name, err)
			}
			overwrite(at, good)
			if path != at {
				os.Remove(path)
				os.Symlink(at, path)
			}
			if _, err := s.Save(ctx, longer, 0); !errors.Is(err, llamacpp.ErrLineage) {
				t.Errorf("%s: Save of what was evaluated meanwhile: %v", x.name, err)
			}
			if got, err = s.Restore(ctx, prompt, 1); err != nil || got.Tokens != 128 {
				t.Errorf("%s and put back: Restore: %+v %v", x.name, got, err)
			}
		}
		if err := s.Prefill(ctx, prompt, got.Tokens, 1); err != nil {
			t.Fatal(x.name, err)
		}
		if d := difference(cold, c.Logits(-1)); d > 1e-4 {
			t.Errorf("%s: restored rows are %.2g off", x.name, d)
		}
		c.Clear()
		kit.EvaluateAndSave(t, s, longer, 0, 0)
	}
}

// A state that is kept whole is compared part by part, whichever stream it lies in.
func TestOpaqueOnlyInStreams(t *testing.T) {
	library(t)
	ctx := context.Background()
	prompt := kv.Tokens(randomTokens(1, 129)...)
	for name, file := range map[string]func() []byte{
		"falcon-h1": func() []byte { return ggufgen.FalconH1(7, 3) }, "lfm2": func() []byte { return ggufgen.LFM2(8, 4) }, "jamba": func() []byte { return ggufgen.Jamba(5, 4) },
		"plain": func() []byte { return ggufgen.LLaMA(1, 3, 64) }, "window": func() []byte { return ggufgen.Gemma3(2, 7, 64, 40) }, "M-RoPE": func() []byte { return ggufgen.Qwen2VL(6, 2) },
		"mamba": func() []byte { return ggufgen.Mamba(4, 2) },
	} {
		for _, unified := range []bool{false, true} {
			r := newRig(t, file(), llama.ContextOptions{Sequences: 3, Unified: unified, Tokens: 768}, db.Options{Codec: quant.Raw})
			whole := func(o *llamacpp.Options) { o.OpaqueOnly = true }
			c := r.context()
			s := r.attach(c, whole)
			if s.Mode() != llamacpp.Opaque {
				t.Fatal(s.Mode())
			}
			for sequence := range 3 { // in the end none is empty
				if err := s.Prefill(ctx, prompt, 0, sequence); err != nil {
					t.Fatal(name, err)
				}
				if err := s.Recheck(ctx); err != nil {
					t.Errorf("%s, unified %v, %d sequences are busy: %v", name, unified, sequence+1, err)
				} else if s.Deviation() > 0.1 {
					t.Errorf("%s, unified %v, %d sequences are busy: %.2g off", name, unified, sequence+1, s.Deviation())
				}
				if _, err := s.Save(ctx, prompt, sequence); err != nil {
					t.Errorf("%s, unified %v: %v", name, unified, err)
				}
			}
			d := r.context()
			s = r.attach(d, func(o *llamacpp.Options) { o.OpaqueOnly, o.Sequence = true, 2 })
			got, err := s.Restore(ctx, prompt, 1)
			if err != nil || got.Tokens != 125 {
				t.Fatalf("%s: %+v %v", name, got, err)
			}
			if err := s.Prefill(ctx, prompt, got.Tokens, 1); err != nil {
				t.Fatal(err)
			}
			if x := difference(c.Logits(-1), d.Logits(-1)); x > 5e-3 {
				t.Logf("%s: %.2g from the logits of the last decode there", name, x)
			}
			// Other weights are still seen.
			if name == "falcon-h1" {
				q := rigFor(t, r.lib, r.api, kit.WriteFile(t, "other.gguf", ggufgen.FalconH1(77, 3)), r.opt, db.Options{Codec: quant.Raw})
				e := q.context()
				if err := e.Decode(prompt.Tokens[:20], 0, 0); err != nil {
					t.Fatal(err)
				}
				_, err := r.tryAttach(e, func(o *llamacpp.Options) {
					o.OpaqueOnly, o.Decode, o.Identity = true, e.Decode, llamacpp.Identity{Weights: s.Model().Descriptor().Weights, Tokenizer: s.Model().Descriptor().Tokenizer}
				})
				if !errors.Is(err, llamacpp.ErrIdentity) {
					t.Errorf("other weights: %v", err)
				}
			}
		}
	}
}
