package llamacpp_test

import (
	"context"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// A recurrent state that went back is refused until the sequence is emptied, however that is done: what comes next begins anew.
func TestEmptiedAfterItWentBack(t *testing.T) {
	ctx := context.Background()
	f := kinds("plain")
	f.recurrent = true
	s := attach(t, kit.OpenStore(t), f, nil)
	tokens := make([]kv.Token, 200)
	if err := s.Prefill(ctx, kv.Tokens(tokens...), 0, 0); err != nil {
		t.Fatal(err)
	}
	f.cut(0, 190)
	_, err := s.Save(ctx, kv.Tokens(tokens[:190]...), 0)
	kit.WantLineage(t, "Save of what went back", err, 0)
	f.cut(0, 0)
	if err := s.Truncate(0, 0); err != nil {
		t.Error(err)
	}
	for at := 0; at < 64; at += 32 {
		if err := f.Decode(tokens[at:at+32], at, 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Capture(ctx, kv.Tokens(tokens[:at+32]...), 0); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Save(ctx, kv.Tokens(tokens[:64]...), 0); err != nil {
		t.Error("it was emptied:", err)
	}
}

// So is one in which the session did not see the first tokens.
func TestEmptiedAfterItWasNotSeen(t *testing.T) {
	ctx := context.Background()
	f := kinds("plain")
	s := attach(t, kit.OpenStore(t), f, func(o *llamacpp.Options) { o.OpaqueOnly = true })
	tokens := make([]kv.Token, 64)
	if err := f.Decode(tokens, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Capture(ctx, kv.Tokens(tokens...), 0); err != nil {
		t.Fatal(err)
	}
	_, err := s.Save(ctx, kv.Tokens(tokens...), 0)
	kit.WantLineage(t, "Save of what was not seen", err, 0)
	f.cut(0, 0)
	if err := s.Truncate(0, 0); err != nil {
		t.Error(err)
	}
	for at := 0; at < 64; at += 32 {
		if err := f.Decode(tokens[at:at+32], at, 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Capture(ctx, kv.Tokens(tokens[:at+32]...), 0); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Save(ctx, kv.Tokens(tokens...), 0); err != nil {
		t.Error("it was emptied:", err)
	}
}

// A hybrid's state that went back is not saved, in whatever mode it is kept, and also if the caller's word was taken for what it was before.
func TestHybridWentBack(t *testing.T) {
	ctx := context.Background()
	f := kinds("plain")
	f.hybrid = true
	s := attach(t, kit.OpenStore(t), f, func(o *llamacpp.Options) { o.OpaqueOnly = true })
	tokens := make([]kv.Token, 200)
	for _, trusted := range []bool{false, true} {
		f.cut(0, 0)
		if trusted {
			if err := s.Reset(0); err != nil {
				t.Fatal(err)
			}
			if err := f.Decode(tokens, 0, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Save(ctx, kv.Tokens(tokens...), 0); err != nil {
				t.Fatal(err)
			}
		} else if err := s.Prefill(ctx, kv.Tokens(tokens...), 0, 0); err != nil {
			t.Fatal(err)
		}
		f.cut(0, 190)
		_, err := s.Save(ctx, kv.Tokens(tokens[:190]...), 0)
		kit.WantLineage(t, "Save", err, 0)
	}
}
