package llamacpp_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// Without a look at the window during the prefill, only the end is restorable, and no position is restored wrongly.
func TestWindowNotCaptured(t *testing.T) {
	ctx := context.Background()
	store := kit.OpenStore(t)
	f := kinds("window")
	s := attach(t, store, f, nil)
	tokens := make([]kv.Token, 150)
	for i := range tokens {
		tokens[i] = kv.Token(i % 7)
	}
	prompt := kv.Tokens(tokens...)
	if err := f.Decode(tokens, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(ctx, prompt, 0); err != nil {
		t.Fatal(err)
	}
	for shared, want := range map[int]int{150: 149, 149: 149, 148: 0, 100: 0} {
		g := kinds("window")
		s2 := attach(t, store, g, nil)
		other := append(append([]kv.Token(nil), tokens[:shared]...), 9)
		if shared == 150 {
			other = tokens
		}
		got, err := s2.Restore(ctx, kv.Tokens(other...), 0)
		if err != nil || got.Tokens != want {
			t.Fatalf("shared %d: restored %d, want %d: %v %v", shared, got.Tokens, want, got.Reason, err)
		}
		if want == 0 && got.Reason.Code != db.WindowMissing {
			t.Errorf("shared %d: reason %v", shared, got.Reason)
		}
	}
}

// Rows that were captured of one prompt are never stored for another.
func TestCapturesBelongToTheirPrompt(t *testing.T) {
	ctx := context.Background()
	store := kit.OpenStore(t)
	f := kinds("window")
	s := attach(t, store, f, nil)
	run := func(s *llamacpp.Session, f *fake, tokens []kv.Token) {
		t.Helper()
		delete(f.seqs, 0)
		if err := s.Prefill(ctx, kv.Tokens(tokens...), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	one, two := make([]kv.Token, 120), make([]kv.Token, 120)
	two[0] = 1
	run(s, f, one)
	run(s, f, two)
	if _, err := s.Save(ctx, kv.Tokens(two...), 0); err != nil {
		t.Fatal(err)
	}
	want := f.logits
	for _, n := range []int{40, 64, 119} {
		g := kinds("window")
		s2 := attach(t, store, g, nil)
		got, err := s2.Restore(ctx, kv.Tokens(two[:n+1]...), 0)
		if err != nil || got.Tokens != n {
			t.Fatalf("restored %d of %d: %v %v", got.Tokens, n, got.Reason, err)
		}
		if err := s2.Prefill(ctx, kv.Tokens(two...), n, 0); err != nil {
			t.Fatal(err)
		}
		if g.logits != want {
			t.Errorf("restored at %d: logits differ", n)
		}
	}
}

// A small bound on captured rows costs saves, not positions.
func TestCaptureBound(t *testing.T) {
	ctx := context.Background()
	for _, capture := range []int{0, 50} {
		store := kit.OpenStore(t)
		f := kinds("window")
		s := attach(t, store, f, func(o *llamacpp.Options) { o.CaptureBytes, o.CaptureTokens = 1, capture })
		tokens := make([]kv.Token, 150)
		kit.EvaluateAndSave(t, s, kv.Tokens(tokens...), 0, 0)
		want := f.logits
		for n := 16; n < 150; n += 9 {
			g := kinds("window")
			s2 := attach(t, store, g, nil)
			got, err := s2.Restore(ctx, kv.Tokens(tokens[:n+1]...), 0)
			if err != nil || capture == 0 && got.Tokens == 0 {
				t.Fatalf("restored %d of %d: %v %v", got.Tokens, n, got.Reason, err)
			}
			if err := s2.Prefill(ctx, kv.Tokens(tokens...), got.Tokens, 0); err != nil {
				t.Fatal(err)
			}
			if g.logits != want {
				t.Errorf("restored at %d: logits differ", got.Tokens)
			}
		}
	}
}

// The bound is that of all sequences together, and of the states on the way of a prompt.
func TestCaptureBoundOfAll(t *testing.T) {
	ctx := context.Background()
	tokens := [2]kv.Prompt{kv.Tokens(make([]kv.Token, 300)...), kv.Tokens(append([]kv.Token{1}, make([]kv.Token, 299)...)...)}
	for name, x := range map[string]struct {
		bytes int64
		want  [2]bool // what is stored without a Save
	}{"room for both": {1 << 20, [2]bool{}}, "room for one": {300 * (8 + 4) * 2 * 2 * 3 / 2, [2]bool{}}, "room for none": {1000, [2]bool{true, true}}} {
		store := kit.OpenStore(t)
		s := attach(t, store, kinds("window"), func(o *llamacpp.Options) { o.CaptureBytes, o.BlockTokens = x.bytes, 16 })
		var got [2]bool
		for i, p := range tokens {
			if err := s.Prefill(ctx, p, 0, i); err != nil {
				t.Fatal(err)
			}
		}
		for i, p := range tokens {
			n, _, err := s.Model().Probe(ctx, p, db.MatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got[i] = n > 0
		}
		if got != x.want {
			t.Errorf("%s: stored %v, want %v", name, got, x.want)
		}
	}
	for bytes, want := range map[int64]bool{1 << 20: true, 1000: false} {
		store := kit.OpenStore(t)
		s := attach(t, store, kinds("plain"), func(o *llamacpp.Options) { o.OpaqueOnly, o.CaptureBytes = true, bytes })
		kit.EvaluateAndSave(t, s, tokens[0], 0, 0)
		n, _, err := s.Model().Probe(ctx, tokens[0].Prefix(299), db.MatchOptions{})
		if err != nil || n > 0 != want {
			t.Errorf("%d bytes: a state at %d tokens: %v", bytes, n, err)
		}
	}
}

// A sequence that is idle, and holds nearly all that may be held, does not have others saved batch by batch. It is not saved itself: what its owner did
// with it meanwhile nobody knows.
func TestIdleSequenceAtTheBound(t *testing.T) {
	ctx := context.Background()
	idle, busy := kv.Tokens(make([]kv.Token, 995)...), kv.Tokens(append([]kv.Token{1}, make([]kv.Token, 799)...)...)
	refill := make([]kv.Token, 900)
	for i := range refill {
		refill[i] = kv.Token(7 + i)
	}
	read := map[string]int{}
	for _, sequence1 := range []string{"empty", "idle", "refilled"} {
		store, f := kit.OpenStore(t), kinds("window")
		s := attach(t, store, f, func(o *llamacpp.Options) { o.CaptureBytes = 1000 * (8 + 4) * 2 * 2 })
		if sequence1 != "empty" {
			if err := s.Prefill(ctx, idle, 0, 1); err != nil {
				t.Fatal(err)
			}
		}
		if sequence1 == "refilled" { // by a loop of one's own, before Reset
			f.cut(1, 0)
			if err := f.Decode(refill, 0, 1); err != nil {
				t.Fatal(err)
			}
		}
		f.read = 0
		if err := s.Prefill(ctx, busy, 0, 0); err != nil {
			t.Fatal(err)
		}
		read[sequence1] = f.read
		if n, _, err := s.Model().Probe(ctx, idle, db.MatchOptions{}); err != nil || n > 0 {
			t.Errorf("%s: %d tokens of the other sequence are stored, which nobody saved: %v", sequence1, n, err)
		}
		if sequence1 != "idle" {
			continue
		}
		if _, err := s.Save(ctx, idle, 1); err != nil {
			t.Fatal(err)
		}
		g := kinds("window")
		if got, err := attach(t, store, g, nil).Restore(ctx, idle, 0); err != nil || got.Tokens != 994 {
			t.Errorf("restored %d of the idle sequence: %v %v", got.Tokens, got.Reason, err)
		}
	}
	if read["idle"] > 3*read["empty"] {
		t.Errorf("%d bytes were read beside an idle sequence, %d without one", read["idle"], read["empty"])
	}
}

// A Capture that is cancelled where it saves keeps what it copied: the next one saves it.
func TestCaptureCancelledAtTheBound(t *testing.T) {
	store := kit.OpenStore(t)
	f := kinds("window")
	s := attach(t, store, f, func(o *llamacpp.Options) { o.CaptureBytes = 1 })
	tokens := make([]kv.Token, 120)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for at := 0; at < len(tokens); at += 24 {
		if err := f.Decode(tokens[at:at+24], at, 0); err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		if at == 24 {
			ctx = cancelled
		}
		if err := s.Capture(ctx, kv.Tokens(tokens[:at+24]...), 0); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if _, err := s.Save(context.Background(), kv.Tokens(tokens...), 0); err != nil {
		t.Fatal(err)
	}
	for n := 17; n <= len(tokens); n++ {
		got, err := attach(t, store, kinds("window"), nil).Restore(context.Background(), kv.Tokens(tokens[:n]...), 0)
		if err != nil || got.Tokens != n-1 {
			t.Errorf("restored %d of %d: %v %v", got.Tokens, n, got.Reason, err)
		}
	}
}
