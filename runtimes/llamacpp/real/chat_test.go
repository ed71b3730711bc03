//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"context"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// host is a host in a new context, as docs/llamacpp.md makes it.
func (r *rig) host() (*chat.Host, error) {
	ctx, model, store, lib := context.Background(), r.model, r.store, r.api
	identity := llamacpp.Identity{Path: model.Path()}
	lctx, err := model.NewContext(llama.ContextOptions{
		Tokens: 2048, Sequences: 16, Unified: true, FullWindow: true, Threads: 1, FlashAttention: ref(false), CacheK: ref(llama.F32), CacheV: ref(llama.F32),
	})
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(lctx.Close)
	o := llamacpp.Options{Identity: identity, Decode: lctx.Decode, Logger: kit.Quiet}
	s, err := llamacpp.Attach(ctx, store, lib, lctx.Pointer(), o)
	if err != nil {
		return nil, err
	}
	runtime, err := s.Runtime(llamacpp.RuntimeOptions{Decode: lctx.DecodeSteps, Logits: lctx.Logits})
	if err != nil {
		return nil, err
	}
	host, err := chat.NewHost(store, s.Model(), runtime)
	return host, err
}

// A conversation whose views hide turns goes on in another context, from the store, as it would have gone on in the first.
func TestChat(t *testing.T) {
	ctx := context.Background()
	lib, api := library(t)
	for name, r := range map[string]*rig{
		"trained": rigFor(t, lib, api, stories, exact(16, 2048), db.Options{Codec: quant.Raw}),
		"window":  newRig(t, ggufgen.Gemma3(2, 7, 64, 40), exact(16, 2048), db.Options{Codec: quant.Raw}),
	} {
		tokens := randomTokens(1, 400)
		options := chat.Options{System: tokens[:40], Facts: 100, Ring: 400, Policy: chat.Recent(1)}
		say := func(c *chat.Conversation, message []kv.Token, commit bool) []float32 {
			turn, err := c.Begin(ctx, message, chat.BeginOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := turn.Append(ctx, message[:5]); err != nil {
				t.Fatal(err)
			}
			scores, err := turn.Logits(ctx)
			if err != nil {
				t.Fatal(err)
			}
			scores = append([]float32(nil), scores...)
			end := turn.Abort
			if commit {
				end = turn.Commit
			}
			if err := end(ctx); err != nil {
				t.Fatal(err)
			}
			return scores
		}
		open := func(o chat.Options) *chat.Conversation {
			h, err := r.host()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := h.Close(); err != nil {
					t.Error(err)
				}
			})
			c, err := h.Open(ctx, "a", o)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		c := open(options)
		for i := range 4 {
			say(c, tokens[40+60*i:100+60*i], true)
		}
		want := say(c, tokens[300:], false)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c = open(options)
		likeTo(t, name+": in another context", 1e-7, want, say(c, tokens[300:], false))
		t.Logf("%s: %+v", name, c.Stats())
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		options.Policy = chat.All
		unlike(t, name+": with all turns", want, say(open(options), tokens[300:], false))
	}
}
