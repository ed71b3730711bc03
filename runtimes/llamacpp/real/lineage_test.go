//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// A cache that llama.cpp shifted is not saved, whatever the model and the cache, and whether the session saw its tokens or not. The
// same tokens, evaluated again in other batches without a word, are.
func TestShift(t *testing.T) {
	library(t)
	ctx := context.Background()
	for _, arch := range architectures() {
		if arch.mode != llamacpp.Rows {
			continue
		}
		t.Run(arch.name, func(t *testing.T) {
			r := newRig(t, arch.gguf(), arch.context, db.Options{Codec: quant.Raw})
			tokens := randomTokens(1, 220)
			prompt := kv.Tokens(tokens...)
			kept := kit.Without(tokens, 4, 60)
			n := len(kept)
			kept = append(kept, randomTokens(2, 30)...)
			for _, known := range []string{"evaluated", "saved", "restored", "nothing"} {
				c := r.context()
				s, m := r.attach(c, nil), r.memory(c)
				if !m.canShift(m.memory) {
					t.Skip("SKIPPED, llama.cpp does not shift this cache")
				}
				from := 0
				switch known {
				case "restored":
					got, err := s.Restore(ctx, prompt, 0)
					if err != nil || got.Tokens != len(tokens)-1 {
						t.Fatalf("restored %d: %v", got.Tokens, err)
					}
					from = got.Tokens
					fallthrough
				default:
					if err := s.Prefill(ctx, prompt, from, 0); err != nil {
						t.Fatal(err)
					}
				case "nothing":
					r.decode(c, tokens, 0, batchTokens)
				}
				if known == "saved" {
					if _, err := s.Save(ctx, prompt, 0); err != nil {
						t.Fatal(err)
					}
					// once more, without a word: the rows are slightly others
					m.remove(m.memory, 0, 100, -1)
					if arch.context.FullWindow || s.Model().Descriptor().Groups[len(s.Model().Descriptor().Groups)-1].Kind == kv.All {
						r.decode(c, tokens, 100, 1)
						if _, err := s.Save(ctx, prompt, 0); err != nil {
							t.Errorf("the same tokens in other batches: %v", err)
						}
					} else {
						r.decode(c, tokens, 100, 50)
					}
				}
				m.shift(4, 60)
				if known != "nothing" {
					_, err := s.Save(ctx, kv.Tokens(kept[:n]...), 0)
					kit.WantLineage(t, known+", at once", err, 4)
				}
				if k := arch.context.CacheK; k != nil && *k == llama.BF16 { // llama.cpp aborts: it does not rotate this type
					continue
				}
				r.decode(c, kept, n, 7)
				_, err := s.Save(ctx, kv.Tokens(kept...), 0)
				if known == "nothing" && arch.context.Unified {
					t.Logf("sequences in one buffer, of which nothing is known: %v", err)
					continue
				}
				kit.WantLineage(t, known+", after a decode", err, 4)
				if known == "saved" {
					if _, err := s.Save(ctx, prompt, 0); err != nil {
						t.Errorf("the prompt as it was, which is stored: %v", err)
					}
				}
			}
		})
	}
}

// Real models: what shifts them is refused; what evaluates them again is not.
func TestShiftOfRealModels(t *testing.T) {
	lib, api := library(t)
	if testing.Short() {
		t.Skip("SKIPPED, no real model is tried: -short")
	}
	ctx := context.Background()
	book, err := os.ReadFile("../testdata/opticks.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{stories, os.Getenv("DORMOUSE_LLAMA_SMOL"), os.Getenv("DORMOUSE_LLAMA_MODEL")} {
		if path == "" {
			t.Log("SKIPPED, a real model: DORMOUSE_LLAMA_MODEL or DORMOUSE_LLAMA_SMOL is not set")
			continue
		}
		for _, cache := range []*llama.CacheType{nil, ref(llama.Q4_0)} {
			if cache != nil && path == stories { // its heads are smaller than a block
				continue
			}
			r := rigFor(t, lib, api, path, llama.ContextOptions{Batch: 96, MicroBatch: 96, Sequences: 2, Unified: true, FullWindow: true, FlashAttention: ref(true), CacheK: cache, CacheV: cache}, db.Options{Codec: quant.Raw})
			tokens, err := r.model.Tokenize(string(book), true)
			if err != nil {
				t.Fatal(err)
			}
			tokens = tokens[:96:96]
			c := r.context()
			s, m := r.attach(c, nil), r.memory(c)
			kit.EvaluateAndSave(t, s, kv.Tokens(tokens...), 0, 0)
			m.remove(m.memory, 0, 80, -1)
			r.decode(c, tokens, 80, 1)
			if _, err := s.Save(ctx, kv.Tokens(tokens...), 0); err != nil {
				t.Errorf("%s: the same tokens in other batches: %v", path, err)
			}
			// As if nothing had been removed: the tokens agree, the rows do not.
			m.shift(4, 20)
			r.decode(c, append(tokens, tokens[4:16]...), len(tokens)-16, 7)
			_, err = s.Save(ctx, kv.Tokens(append(tokens, tokens[4:16]...)...), 0)
			var l *llamacpp.LineageError
			if !errors.As(err, &l) || l.From >= len(tokens) {
				t.Errorf("%s: %v, want ErrLineage", path, err)
			}
			t.Log(err)
			c.Close()
		}
	}
}
