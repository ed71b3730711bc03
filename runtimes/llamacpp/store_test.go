package llamacpp_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// A store that takes nothing, or is closed, does not keep a prompt from being evaluated, whatever Prefill captures on the way; Save and
// Restore say what is the matter, and do not take it for another identity.
func TestPrefillWithoutAStore(t *testing.T) {
	ctx := context.Background()
	first, all := kv.Tokens(make([]kv.Token, 150)...), kv.Tokens(make([]kv.Token, 200)...)
	for name, change := range map[string]func(*llamacpp.Options){
		"rows without bound": nil,
		"few rows":           func(o *llamacpp.Options) { o.CaptureBytes = 1 },
		"every look saved":   func(o *llamacpp.Options) { o.CaptureTokens = 50 },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			store := kit.OpenStoreAt(t, dir, db.Options{})
			attach(t, store, kinds("window"), nil)
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			store = kit.OpenStoreAt(t, dir, db.Options{ReadOnly: true})
			f := kinds("window")
			s := attach(t, store, f, change)
			if err := s.Prefill(ctx, first, 0, 0); err != nil {
				t.Errorf("prefill beside a store that is only read: %v", err)
			}
			if _, err := s.Save(ctx, first, 0); !errors.Is(err, db.ErrReadOnly) {
				t.Errorf("save: %v", err)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Restore(ctx, first, 1); !errors.Is(err, db.ErrClosed) {
				t.Errorf("restore from a closed store: %v", err)
			}
			if err := s.Prefill(ctx, all, 150, 0); err != nil {
				t.Errorf("prefill beside a closed store: %v", err)
			}
			if _, err := s.Save(ctx, all, 0); !errors.Is(err, db.ErrClosed) {
				t.Errorf("save: %v", err)
			}
			if n := f.max(0) + 1; n != 200 {
				t.Errorf("the sequence has %d tokens, not 200", n)
			}
		})
	}
}

// A context that is attached to a store which another process writes to restores what is there as of that one's last checkpoint; before the first one, nothing.
// What it cannot do it says in words.
func TestAttachBesideAWriter(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	p := kv.Tokens(make([]kv.Token, 150)...)
	w := kit.OpenStoreAt(t, dir, db.Options{CheckpointInterval: -1})
	r := kit.OpenStoreAt(t, dir, db.Options{ReadOnly: true})
	f := kinds("plain")
	o := options(f.Decode)
	if _, err := llamacpp.Attach(ctx, r, f.library(), 1, o); !errors.Is(err, db.ErrReadOnly) || !strings.Contains(err.Error(), "a process that writes registers it") {
		t.Errorf("attach, and nobody has registered the model: %v", err)
	}
	s := attach(t, w, kinds("plain"), nil)
	if err := s.Prefill(ctx, p, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(ctx, p, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Suspend(ctx), r.Resume(ctx)); err != nil {
		t.Fatal(err)
	}
	reading := attach(t, r, f, nil)
	if got, err := reading.Restore(ctx, p, 0); err != nil || got.Tokens != 0 {
		t.Errorf("before the first checkpoint: %d tokens, %v", got.Tokens, err)
	}
	if err := errors.Join(w.Checkpoint(ctx), r.Suspend(ctx), r.Resume(ctx)); err != nil {
		t.Fatal(err)
	}
	if got, err := reading.Restore(ctx, p, 0); err != nil || got.Tokens != 149 {
		t.Errorf("after it: %d tokens, %v", got.Tokens, err)
	}
	if err := reading.Prefill(ctx, p, 149, 0); err != nil {
		t.Error(err)
	}
	if _, err := reading.Save(ctx, kv.Tokens(make([]kv.Token, 149)...), 0); err != nil && !errors.Is(err, db.ErrReadOnly) {
		t.Errorf("save: %v", err)
	}
}

// Two sessions that are the first ones at once: one stores its canary, the other one is compared with it, and both go on.
func TestTwoFirstSessions(t *testing.T) {
	ctx := context.Background()
	for range 20 {
		store := kit.OpenStore(t)
		var sessions [2]*llamacpp.Session
		begin, done := make(chan struct{}), make(chan error)
		for i := range sessions {
			go func() {
				f := kinds("plain")
				f.contextLen = 1000 * (i + 1) // is in the note
				o := options(f.Decode)
				lib := f.library()
				<-begin
				var err error
				sessions[i], err = llamacpp.Attach(ctx, store, lib, f.address(), o)
				done <- err
			}()
		}
		close(begin)
		for range sessions {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range sessions {
			if err := s.Prefill(ctx, kv.Tokens(make([]kv.Token, 40)...), 0, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A store with bytes that have rotted restores less, or nothing, but nothing wrong; the context goes on as if the rest had
// never been stored.
func TestDamagedStore(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(1, 2))
	shorter := 0
	for _, opaque := range []bool{false, true} {
		for _, kind := range []string{"plain", "window", "channel-major"} {
			for range 4 {
				dir := memdir.Dir(t)
				store := kit.OpenStoreAt(t, dir, db.Options{Codec: quant.Raw})
				f := kinds(kind)
				s := attach(t, store, f, func(o *llamacpp.Options) { o.BlockTokens, o.OpaqueOnly = 16, opaque })
				tokens := make([]kv.Token, 130)
				for i := range tokens {
					tokens[i] = kv.Token(i % 11)
				}
				prompt := kv.Tokens(tokens...)
				for n := 40; n <= 130; n += 30 { // Opaque has several states to fall back to
					if err := s.Prefill(ctx, prompt.Prefix(n), len(f.seqs[0]), 0); err != nil {
						t.Fatal(err)
					}
					if _, err := s.Save(ctx, prompt, 0); err != nil {
						t.Fatal(err)
					}
				}
				want := f.logits
				for range 3 {
					kit.Flip(t, dir, rng)
				}
				g := kinds(kind)
				s2 := attach(t, store, g, func(o *llamacpp.Options) { o.BlockTokens, o.OpaqueOnly = 16, opaque })
				got, err := s2.Restore(ctx, prompt, 0)
				if err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				if got.Tokens < 129 && !opaque {
					shorter++
				}
				if err := s2.Prefill(ctx, prompt, got.Tokens, 0); err != nil {
					t.Fatal(err)
				}
				if g.logits != want {
					t.Errorf("%s: restored %d tokens (%v): logits differ", kind, got.Tokens, got.Reason)
				}
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if shorter == 0 {
		t.Error("no damage was ever met: the test shows nothing")
	}
}
