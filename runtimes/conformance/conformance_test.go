package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

// kitOf makes runtimes of one store. wrap may break them.
func kitOf(t *testing.T, o hashed.Options, wrap func(*hashed.Runtime) chat.Runtime) Kit {
	t.Helper()
	store, err := db.Open(context.Background(), memdir.Dir(t), db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return Kit{Vocabulary: 64, New: func(t testing.TB) chat.Runtime {
		r, err := hashed.New(context.Background(), store, o)
		if err != nil {
			t.Fatal(err)
		}
		return wrap(r)
	}}
}

func sound(r *hashed.Runtime) chat.Runtime { return r }

// The runtime of the tests of laws passes, with few cells and sequences, and with a window, too.
func TestHashed(t *testing.T) {
	for name, o := range map[string]hashed.Options{
		"plain":       {Cells: 300, Batch: 48},
		"single step": {Sequences: 4, Cells: 256, Batch: 1, BlockTokens: 64},
		"window":      {Cells: 256, Window: 64},
	} {
		t.Run(name, func(t *testing.T) { Run(t, kitOf(t, o, sound)) })
	}
}

// A runtime with any of these faults does not pass.
func TestFaultsAreFound(t *testing.T) {
	for name, wrap := range map[string]func(*hashed.Runtime) chat.Runtime{
		"Copy gives a row too many": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, copied: func(from, to int, in kv.Range) error { return r.Copy(from, to, span(in.Start, in.End+1)) }}
		},
		"Copy leaves a row out": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, copied: func(from, to int, in kv.Range) error { return r.Copy(from, to, span(in.Start+1, in.End)) }}
		},
		"Copy does nothing": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, copied: func(from, to int, in kv.Range) error { return nil }}
		},
		"Remove does nothing in the middle, and says nothing": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, remove: func(seq int, in kv.Range) error {
				if rows := r.Rows(seq); len(rows) > 0 && in.End <= rows[len(rows)-1].Pos {
					return nil
				}
				return r.Remove(seq, in)
			}}
		},
		"Remove takes the rows from all sequences": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, remove: func(seq int, in kv.Range) error {
				if in == whole { // else most tests fail at once
					return r.Remove(seq, in)
				}
				for s := range 4 {
					if err := r.Remove(s, in); err != nil {
						return err
					}
				}
				return nil
			}}
		},
		"Remove keeps the last row of the range": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, remove: func(seq int, in kv.Range) error { return r.Remove(seq, span(in.Start, in.End-1)) }}
		},
		"Load knows no spans": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, load: func(p kv.Prompt, seq int, ranges []kv.Range) (int, error) {
				p.Spans = nil
				return r.Load(background, p, seq, ranges)
			}}
		},
		"Load and Store know no spans": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, load: func(p kv.Prompt, seq int, ranges []kv.Range) (int, error) {
				p.Spans = nil
				return r.Load(background, p, seq, ranges)
			}, store: func(p kv.Prompt, seq int, in kv.Range) error {
				p.Spans = nil
				return r.Store(background, p, seq, in)
			}}
		},
		"Load loads all between the ranges, too": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, load: func(p kv.Prompt, seq int, ranges []kv.Range) (int, error) {
				if len(ranges) > 1 {
					ranges = []kv.Range{span(ranges[0].Start, ranges[len(ranges)-1].End)}
				}
				return r.Load(background, p, seq, ranges)
			}}
		},
		"Load says that all is stored": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, load: func(p kv.Prompt, seq int, ranges []kv.Range) (int, error) {
				_, err := r.Load(background, p, seq, ranges)
				return len(p.Tokens), err
			}}
		},
		"Load forgets the last range": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, load: func(p kv.Prompt, seq int, ranges []kv.Range) (int, error) {
				return r.Load(background, p, seq, ranges[:max(len(ranges)-1, 0)])
			}}
		},
		"Load clears the sequence": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, load: func(p kv.Prompt, seq int, ranges []kv.Range) (int, error) {
				return r.Load(background, p, seq, ranges)
			}, before: func(seq int) { _ = r.Remove(seq, whole) }}
		},
		"Load loads what it can when it is full": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, load: func(p kv.Prompt, seq int, ranges []kv.Range) (int, error) {
				n, err := r.Load(background, p, seq, ranges)
				if errors.Is(err, kv.ErrFull) {
					_, _ = r.Load(background, p, seq, ranges[:1])
				}
				return n, err
			}}
		},
		"Store stores nothing": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, store: func(p kv.Prompt, seq int, in kv.Range) error { return nil }}
		},
		"Store stops a row early": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, store: func(p kv.Prompt, seq int, in kv.Range) error {
				return r.Store(background, p, seq, span(in.Start, max(in.Start, in.End-1)))
			}}
		},
		"Decode keeps the steps for which there was room": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, decode: func(steps []kv.Step) error {
				err := r.Decode(background, steps)
				if errors.Is(err, kv.ErrFull) {
					for i := range steps {
						if r.Decode(background, steps[i:i+1]) != nil {
							break
						}
					}
				}
				return err
			}}
		},
		"Decode keeps the steps before a wrong one": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, decode: func(steps []kv.Step) error {
				err := r.Decode(background, steps)
				if err != nil && !errors.Is(err, kv.ErrFull) {
					_ = r.Decode(background, steps[:1])
				}
				return err
			}}
		},
		"Decode puts a step anywhere": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, decode: func(steps []kv.Step) error {
				steps = slices.Clone(steps)
				if rows := r.Rows(0); len(rows) > 0 && len(steps) == 1 && steps[0].Seq == 0 {
					steps[0].Pos = rows[len(rows)-1].Pos + 1
				}
				return r.Decode(background, steps)
			}}
		},
		"a full cache is another error": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, decode: func(steps []kv.Step) error {
				if err := r.Decode(background, steps); errors.Is(err, kv.ErrFull) {
					return errors.New("no room")
				} else {
					return err
				}
			}}
		},
		"Logits are those of the first step": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, logits: func(step int) []float32 { return r.Logits(0) }}
		},
		"Logits are of one that saw nothing": func(r *hashed.Runtime) chat.Runtime {
			return &faulty{Runtime: r, logits: func(step int) []float32 { return make([]float32, 64) }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kitOf(t, hashed.Options{Cells: 260}, wrap)
			for _, c := range checks {
				if found := fails(t, c.run, k, c.name); found != "" {
					t.Logf("%s: %s", c.name, found)
					return
				}
			}
			t.Error("it passed")
		})
	}
}

// A tolerance under which everything is the same is found out.
func TestToleranceIsJudged(t *testing.T) {
	k := kitOf(t, hashed.Options{Cells: 260}, sound)
	k.Tolerance = 1e9
	for _, c := range checks {
		if fails(t, c.run, k, c.name) != "" {
			return
		}
	}
	t.Error("it passed")
}

// fails is the first thing that a check finds wrong.
func fails(t *testing.T, run func(*check), k Kit, name string) string {
	rec := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(k.begin(rec, name))
	}()
	<-done
	return rec.found
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	found string
}

func (r *recorder) note(what string) {
	if r.found == "" {
		r.found = what
	}
}
func (r *recorder) Helper()                      {}
func (r *recorder) Logf(string, ...any)          {}
func (r *recorder) Error(args ...any)            { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.note(fmt.Sprintf(f, args...)) }
func (r *recorder) Fatal(args ...any)            { r.note(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.note(fmt.Sprintf(f, args...)); runtime.Goexit() }

// faulty is a runtime with some calls replaced.
type faulty struct {
	*hashed.Runtime
	decode func([]kv.Step) error
	logits func(int) []float32
	copied func(from, to int, in kv.Range) error
	remove func(int, kv.Range) error
	before func(seq int)
	load   func(kv.Prompt, int, []kv.Range) (int, error)
	store  func(kv.Prompt, int, kv.Range) error
}

func (f *faulty) Decode(ctx context.Context, steps []kv.Step) error {
	if f.decode == nil || ctx.Err() != nil || len(steps) == 0 {
		return f.Runtime.Decode(ctx, steps)
	}
	return f.decode(steps)
}

func (f *faulty) Logits(step int) []float32 {
	if f.logits == nil {
		return f.Runtime.Logits(step)
	}
	return f.logits(step)
}

func (f *faulty) Copy(from, to int, in kv.Range) error {
	if f.copied == nil {
		return f.Runtime.Copy(from, to, in)
	}
	return f.copied(from, to, in)
}

func (f *faulty) Remove(seq int, in kv.Range) error {
	if f.remove == nil {
		return f.Runtime.Remove(seq, in)
	}
	return f.remove(seq, in)
}

func (f *faulty) Load(ctx context.Context, p kv.Prompt, seq int, ranges []kv.Range) (int, error) {
	if f.load == nil || ctx.Err() != nil {
		return f.Runtime.Load(ctx, p, seq, ranges)
	}
	if f.before != nil {
		f.before(seq)
	}
	return f.load(p, seq, ranges)
}

func (f *faulty) Store(ctx context.Context, p kv.Prompt, seq int, in kv.Range) error {
	if f.store == nil || ctx.Err() != nil {
		return f.Runtime.Store(ctx, p, seq, in)
	}
	return f.store(p, seq, in)
}
