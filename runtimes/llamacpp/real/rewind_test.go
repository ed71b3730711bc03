//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// What Prefill evaluates behind positions that were taken back has the logits of an empty cache, after a restore and without one; where it
// cannot have them, it is refused.
func TestTakenBack(t *testing.T) {
	library(t)
	ctx := context.Background()
	for _, arch := range architectures() {
		if arch.mode != llamacpp.Rows {
			continue
		}
		t.Run(arch.name, func(t *testing.T) {
			r := newRig(t, arch.gguf(), arch.context, db.Options{Codec: quant.Raw})
			prompt := kv.Tokens(randomTokens(1, 400)...)
			c := r.context()
			s := r.attach(c, nil)
			window, memory := int(r.api.Window(r.api.GetModel(c.Pointer()))), r.api.GetMemory(c.Pointer())
			kit.EvaluateAndSave(t, s, prompt, 0, 0)
			refused := map[bool]int{}
			for _, restored := range []bool{false, true} {
				for _, n := range []int{398, 385, 365, 340, 100, 30} {
					r.api.SequenceRemove(memory, 0, -1, -1)
					from := 0
					if restored {
						got, err := s.Restore(ctx, prompt, 0)
						if err != nil || got.Tokens != 399 {
							t.Fatal(got, err)
						}
						from = got.Tokens
					}
					if err := s.Prefill(ctx, prompt, from, 0); err != nil {
						t.Fatal(err)
					}
					if !r.api.SequenceRemove(memory, 0, int32(n), -1) {
						t.Fatal("llama.cpp does not remove")
					}
					other := kv.Tokens(append(prompt.Tokens[:n:n], randomTokens(n, 20)...)...)
					err := s.Prefill(ctx, other, n, 0)
					switch {
					case errors.Is(err, llamacpp.ErrLineage):
						refused[restored]++
						if _, err := s.Save(ctx, other.Prefix(n), 0); err != nil {
							t.Errorf("what lies before %d: %v", n, err)
						}
						continue
					case errors.Is(err, llamacpp.ErrPositions) && window > 0: // no row of a window layer is left: llama.cpp says that the sequence is empty
						refused[restored]++
						other = kv.Tokens(randomTokens(n, 50)...)
						err = s.Prefill(ctx, other, 0, 0)
					}
					if err != nil {
						t.Fatal(err)
					}
					// Batches of other sizes, and rows in other cells, differ a little: by less than any that lacks a row.
					if d := difference(r.evaluated(other, batchTokens, 0), c.Logits(-1)); d > 2e-2 {
						t.Errorf("restored %v, taken back to %d: logits differ by %g", restored, n, d)
					}
				}
			}
			t.Logf("refused %d of 6, after a restore %d", refused[false], refused[true])
			if window == 0 && refused[false]+refused[true] > 0 || window > 0 && (refused[true] == 0 || arch.context.FullWindow && refused[false] > 0) {
				t.Errorf("refused %v, window %d", refused, window)
			}
		})
	}
}

// The same of states that are not cut: none is gone on from, or stored, that lacks a part of its window.
func TestOpaqueTakenBack(t *testing.T) {
	library(t)
	ctx := context.Background()
	for _, arch := range architectures() {
		if arch.mode != llamacpp.Rows {
			continue
		}
		t.Run(arch.name, func(t *testing.T) {
			r := newRig(t, arch.gguf(), arch.context, db.Options{Codec: quant.Raw})
			prompt := kv.Tokens(randomTokens(1, 400)...)
			c := r.context()
			s := r.attach(c, func(o *llamacpp.Options) { o.OpaqueOnly = true })
			windowed, memory := r.api.Window(r.api.GetModel(c.Pointer())) > 0, r.api.GetMemory(c.Pointer())
			kit.EvaluateAndSave(t, s, prompt, 0, 0)
			for _, n := range []int{386, 30} {
				r.api.SequenceRemove(memory, 0, -1, -1)
				got, err := s.Restore(ctx, prompt, 0)
				if err != nil || got.Tokens != 396 {
					t.Fatal(got, err)
				}
				if !r.api.SequenceRemove(memory, 0, int32(n), -1) {
					t.Fatal("llama.cpp does not remove")
				}
				other := kv.Tokens(append(prompt.Tokens[:n:n], randomTokens(n, 20)...)...)
				_, err = s.Save(ctx, prompt.Prefix(n), 0)
				if windowed {
					if err == nil {
						t.Errorf("stored the state after %d tokens, which lacks rows of its window", n)
					}
					if err := s.Prefill(ctx, other, n, 0); err == nil {
						t.Errorf("went on from %d tokens without rows of their window", n)
					}
					continue
				}
				if err != nil {
					t.Error(err)
				}
				kit.EvaluateAndSave(t, s, other, n, 0)
				if d := difference(r.evaluated(other, batchTokens, 0), c.Logits(-1)); d > 2e-2 {
					t.Errorf("taken back to %d: logits differ by %g", n, d)
				}
			}
		})
	}
}

// The same tokens, evaluated again behind a restore by a caller who does not say so, have rows that lack a part of their window: they are not stored. In models
// without windows they are what they were.
func TestTheSameTokensTakenBack(t *testing.T) {
	library(t)
	ctx := context.Background()
	for _, arch := range architectures() {
		if arch.mode != llamacpp.Rows {
			continue
		}
		t.Run(arch.name, func(t *testing.T) {
			for _, whole := range []bool{false, true} {
				r := newRig(t, arch.gguf(), arch.context, db.Options{Codec: quant.Raw})
				prompt := kv.Tokens(randomTokens(1, 400)...)
				c := r.context()
				s := r.attach(c, func(o *llamacpp.Options) { o.OpaqueOnly = whole })
				windowed, memory := r.api.Window(r.api.GetModel(c.Pointer())) > 0, r.api.GetMemory(c.Pointer())
				kit.EvaluateAndSave(t, s, prompt, 0, 0)
				for _, n := range []int{390, 385, 375} {
					r.api.SequenceRemove(memory, 0, -1, -1)
					if got, err := s.Restore(ctx, prompt, 0); err != nil || got.Tokens < 396 {
						t.Fatal(got, err)
					}
					if !r.api.SequenceRemove(memory, 0, int32(n), -1) {
						t.Fatal("llama.cpp does not remove")
					}
					more := kv.Tokens(append(prompt.Tokens[:400:400], randomTokens(n, 20)...)...)
					if err := errors.Join(c.Decode(more.Tokens[n:400], n, 0), c.Decode(more.Tokens[400:], 400, 0)); err != nil {
						t.Fatal(err)
					}
					if _, err := s.Save(ctx, more, 0); errors.Is(err, llamacpp.ErrLineage) != windowed || !windowed && err != nil {
						t.Errorf("taken back to %d, whole states %v: %v", n, whole, err)
					}
				}
			}
		})
	}
}

// A state that llama_decode left half done, as it does when it is stopped between two micro-batches, is not gone on from and not stored.
func TestStoppedInABatch(t *testing.T) {
	library(t)
	ctx := context.Background()
	stopped := errors.New("stopped")
	for _, arch := range architectures() {
		t.Run(arch.name, func(t *testing.T) {
			r := newRig(t, arch.gguf(), arch.context, db.Options{Codec: quant.Raw})
			prompt := kv.Tokens(randomTokens(1, 100)...)
			c, stop := r.context(), false
			s := r.attach(c, func(o *llamacpp.Options) {
				decode := o.Decode
				o.Decode = func(tokens []kv.Token, first, sequence int) error {
					if stop && first >= batchTokens {
						return errors.Join(decode(tokens[:len(tokens)/2], first, sequence), stopped)
					}
					return decode(tokens, first, sequence)
				}
			})
			stop = true
			if err := s.Prefill(ctx, prompt, 0, 0); !errors.Is(err, stopped) {
				t.Fatal(err)
			}
			memory := r.api.GetMemory(c.Pointer())
			n := int(r.api.SequenceMax(memory, 0)) + 1
			_, err := s.Save(ctx, prompt.Prefix(n), 0)
			if arch.mode == llamacpp.Rows {
				if err != nil {
					t.Error(err)
				}
			} else {
				kit.WantLineage(t, "Save", err, batchTokens)
				kit.WantLineage(t, "Prefill", s.Prefill(ctx, prompt, n, 0), batchTokens)
				r.api.SequenceRemove(memory, 0, -1, -1)
				n = 0
			}
			stop = false
			if err := s.Prefill(ctx, prompt, n, 0); err != nil {
				t.Fatal(err)
			}
			if d := difference(r.evaluated(prompt, batchTokens, 0), c.Logits(-1)); d > 2e-2 {
				t.Errorf("logits differ by %g", d)
			}
		})
	}
}
