package llamacpp_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// A state is kept on the way of a prompt only while the sequence holds that prompt.
func TestStatesOfAnotherPrompt(t *testing.T) {
	ctx := context.Background()
	store := kit.OpenStore(t)
	f := kinds("plain")
	opaque := func(o *llamacpp.Options) { o.OpaqueOnly = true }
	s := attach(t, store, f, opaque)
	had, now := make([]kv.Token, 600), make([]kv.Token, 700)
	for i := 300; i < len(now); i++ {
		now[i] = 1
	}
	if err := s.Prefill(ctx, kv.Tokens(had...), 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Prefill(ctx, kv.Tokens(now...), 600, 0); err != nil {
		t.Fatal(err)
	}
	_, err := s.Save(ctx, kv.Tokens(now...), 0)
	kit.WantLineage(t, "Save", err, 300)
	f.cut(0, 300)
	if err := s.Prefill(ctx, kv.Tokens(now...), 300, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(ctx, kv.Tokens(now...), 0); err != nil {
		t.Fatal(err)
	}
	want := f.logits
	for n := len(now); n > 0; n -= 4 {
		g := kinds("plain")
		s := attach(t, store, g, opaque)
		got, err := s.Restore(ctx, kv.Tokens(now[:n]...), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Prefill(ctx, kv.Tokens(now...), got.Tokens, 0); err != nil {
			t.Fatal(err)
		}
		if g.logits != want {
			t.Fatalf("restored %d tokens: other logits", got.Tokens)
		}
		if got.Tokens == 0 {
			break
		}
	}
}

// A state that cannot be cut and into which a failed llama_decode put a part of a batch is no state of any prompt: nothing goes on there, and nothing
// of it is stored, until the sequence is emptied.
func TestDecodeFailsHalfway(t *testing.T) {
	ctx := context.Background()
	store := kit.OpenStore(t)
	tokens := make([]kv.Token, 100)
	for i := range tokens {
		tokens[i] = kv.Token(i)
	}
	f := kinds("plain")
	s := attach(t, store, f, func(o *llamacpp.Options) { o.OpaqueOnly = true })
	for _, from := range []int{0, 50} {
		f.cut(0, 0)
		if from > 0 {
			if err := s.Prefill(ctx, kv.Tokens(tokens[:from]...), 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		f.failAfter = 5
		if err := s.Prefill(ctx, kv.Tokens(tokens...), from, 0); !errors.Is(err, errDecode) {
			t.Fatal(err)
		}
		part := kv.Tokens(tokens[:from+5]...)
		_, err := s.Save(ctx, part, 0)
		kit.WantLineage(t, "Save", err, from)
		kit.WantLineage(t, "Capture", s.Capture(ctx, part, 0), from)
		kit.WantLineage(t, "Prefill", s.Prefill(ctx, kv.Tokens(tokens...), from+5, 0), from)
		kit.WantLineage(t, "Truncate to before it, where nothing was removed", s.Truncate(0, from), from)
		kit.WantLineage(t, "Prefill", s.Prefill(ctx, kv.Tokens(tokens...), from+5, 0), from)
	}
	f.cut(0, 0)
	if err := s.Prefill(ctx, kv.Tokens(tokens...), 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(ctx, kv.Tokens(tokens...), 0); err != nil {
		t.Error(err)
	}
}
