package llamacpp_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// What is not rows of tokens is kept whole, or refused, and the reason is told.
func TestModes(t *testing.T) {
	store := kit.OpenStore(t)
	for name, x := range map[string]struct {
		change func(*fake)
		mode   llamacpp.Mode // 0: refused
	}{
		"plain":            {func(f *fake) {}, llamacpp.Rows},
		"recurrent":        {func(f *fake) { f.recurrent = true }, llamacpp.Opaque},
		"M-RoPE":           {func(f *fake) { f.ropeType = 8 }, llamacpp.Opaque},
		"no RoPE":          {func(f *fake) { f.ropeType = -1 }, llamacpp.Rows},
		"not causal":       {func(f *fake) { f.causal = "false" }, 0},
		"set fails":        {func(f *fake) { f.refuseSet = true }, 0},
		"not what was set": {func(f *fake) { f.stale = true }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := kinds("plain")
			x.change(f)
			o := options(f.Decode)
			s, err := llamacpp.Attach(context.Background(), store, f.library(), f.address(), o)
			if x.mode == 0 {
				if !errors.Is(err, llamacpp.ErrRefused) {
					t.Fatalf("not refused: %v", err)
				}
				t.Log(err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Log(s.Why())
			if s.Mode() != x.mode {
				t.Errorf("mode %v: %s", s.Mode(), s.Why())
			}
			if x.mode == llamacpp.Opaque {
				f := kinds("plain")
				x.change(f)
				o := options(f.Decode)
				o.RowsOnly = true
				if _, err := llamacpp.Attach(context.Background(), store, f.library(), f.address(), o); !errors.Is(err, llamacpp.ErrRefused) {
					t.Errorf("RowsOnly: %v", err)
				}
			}
		})
	}
	f := kinds("plain")
	o := options(nil)
	if _, err := llamacpp.Attach(context.Background(), store, f.library(), f.address(), o); !errors.Is(err, llamacpp.ErrNeedDecode) {
		t.Errorf("no Decode: %v", err)
	}
	o = options(f.Decode)
	o.Weights = kv.Hash{}
	if _, err := llamacpp.Attach(context.Background(), store, f.library(), f.address(), o); !errors.Is(err, llamacpp.ErrRefused) {
		t.Errorf("no identity: %v", err)
	}
	lib := f.library()
	lib.StateSet = nil
	if _, err := llamacpp.Attach(context.Background(), store, lib, 1, options(f.Decode)); !errors.Is(err, llamacpp.ErrRefused) {
		t.Errorf("missing function: %v", err)
	}
}

// An opaque state is restored where it was saved, and nowhere else.
func TestOpaque(t *testing.T) {
	ctx := context.Background()
	store := kit.OpenStore(t)
	f := kinds("plain")
	opaque := func(o *llamacpp.Options) { o.OpaqueOnly = true }
	s := attach(t, store, f, opaque)
	if s.Mode() != llamacpp.Opaque {
		t.Fatal(s.Mode())
	}
	tokens := make([]kv.Token, 100)
	for i := range tokens {
		tokens[i] = kv.Token(i)
	}
	for _, n := range []int{50, 80} {
		if err := s.Prefill(ctx, kv.Tokens(tokens[:n]...), max(0, n-30)/50*50, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Save(ctx, kv.Tokens(tokens...), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Save(ctx, kv.Tokens(tokens[:79]...), 0); !errors.Is(err, llamacpp.ErrPositions) {
		t.Errorf("a state after 80 tokens saved for 79: %v", err)
	}
	for n, want := range map[int]int{100: 80, 81: 80, 80: 50, 51: 50, 50: 0} {
		g := kinds("plain")
		s2 := attach(t, store, g, opaque)
		got, err := s2.Restore(ctx, kv.Tokens(tokens[:n]...), 0)
		if err != nil || got.Tokens != want {
			t.Fatalf("prompt of %d: restored %d, want %d: %v %v", n, got.Tokens, want, got.Reason, err)
		}
		if err := s2.Prefill(ctx, kv.Tokens(tokens...), got.Tokens, 0); err != nil {
			t.Fatal(err)
		}
		plain := kinds("plain")
		plain.library()
		if err := plain.Decode(tokens, 0, 0); err != nil {
			t.Fatal(err)
		}
		if g.logits != plain.logits {
			t.Errorf("prompt of %d: logits differ", n)
		}
	}
}

func TestMisuse(t *testing.T) {
	ctx := context.Background()
	store := kit.OpenStore(t)
	f := kinds("plain")
	s := attach(t, store, f, nil)
	prompt := kv.Tokens(make([]kv.Token, 40)...)
	for _, seq := range []int{-1, 3} {
		_, saved := s.Save(ctx, prompt, seq)
		_, restored := s.Restore(ctx, prompt, seq)
		for _, err := range []error{saved, restored, s.Prefill(ctx, prompt, 0, seq), s.Capture(ctx, prompt, seq)} {
			if !errors.Is(err, llamacpp.ErrSequence) {
				t.Errorf("sequence %d of 3: %v", seq, err)
			}
		}
	}
	if _, err := s.Save(ctx, prompt, 0); !errors.Is(err, llamacpp.ErrPositions) {
		t.Errorf("save of an empty sequence: %v", err)
	}
	if err := s.Prefill(ctx, prompt, 5, 0); !errors.Is(err, llamacpp.ErrPositions) {
		t.Errorf("prefill behind a gap: %v", err)
	}
	if err := s.Prefill(ctx, prompt, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Restore(ctx, prompt, 0); !errors.Is(err, llamacpp.ErrNotEmpty) {
		t.Errorf("restore into a sequence with tokens: %v", err)
	}
	if _, err := s.Save(ctx, prompt, 0); err != nil {
		t.Fatal(err)
	}
	delete(f.seqs, 0)
	f.refuseSet = true
	if _, err := s.Restore(ctx, prompt, 0); !errors.Is(err, llamacpp.ErrState) {
		t.Errorf("a state that llama.cpp does not take: %v", err)
	}
	if f.max(0) >= 0 {
		t.Error("half a state was left in the sequence")
	}
	f.refuseSet = false
	delete(f.seqs[0], 0)
	if err := f.Decode([]kv.Token{1, 2, 3}, 0, 0); err != nil {
		t.Fatal(err)
	}
	delete(f.seqs[0], 0)
	if _, err := s.Save(ctx, prompt, 0); !errors.Is(err, llamacpp.ErrPositions) {
		t.Errorf("save of a sequence that lost its beginning: %v", err)
	}
}

// With positions of several dimensions an image has fewer positions than tokens, so that the last position does not tell how
// much of a prompt the cache holds.
func TestSpansOfFewerPositions(t *testing.T) {
	const imagePositions, mrope = 8, 8
	f := kinds("plain")
	f.ropeType = mrope
	store := kit.OpenStore(t)
	s := attach(t, store, f, nil)
	tokens := make([]kv.Token, 200)
	for i := range tokens {
		tokens[i] = kv.Token(i)
	}
	prompt := kv.Prompt{Tokens: tokens, Spans: []kv.Span{{Start: 20, Len: 64, Hash: kv.Hash{1}}}}
	if err := f.Decode(tokens[:200-64+imagePositions], 0, 0); err != nil { // text, image, text: all of the prompt
		t.Fatal(err)
	}
	if _, err := s.Save(context.Background(), prompt, 0); !errors.Is(err, llamacpp.ErrPositions) {
		t.Errorf("save: %v, want ErrPositions", err)
	}
	prompt.Tokens[180]++ // what another prompt shares is not all that the state was made of
	got, err := s.Restore(context.Background(), prompt, 1)
	if err != nil || got.Tokens != 0 {
		t.Errorf("%d tokens are restored from a state of all 200 of another prompt (%v)", got.Tokens, err)
	}
}

// A whole state is tied to a release: a library that does not name its own is refused, as Attach cannot tell it from the next.
func TestOpaqueNeedsVersion(t *testing.T) {
	f := kinds("plain")
	lib := f.library()
	lib.Version = nil
	o := options(f.Decode)
	if _, err := llamacpp.Attach(context.Background(), kit.OpenStore(t), lib, 1, o); err != nil {
		t.Errorf("rows: %v", err)
	}
	o.OpaqueOnly = true
	if _, err := llamacpp.Attach(context.Background(), kit.OpenStore(t), lib, 1, o); !errors.Is(err, llamacpp.ErrRefused) {
		t.Errorf("whole states: %v, want ErrRefused", err)
	}
}

// What a caller forgot is an error, not a panic.
func TestNilArguments(t *testing.T) {
	ctx, store, f := context.Background(), kit.OpenStore(t), kinds("plain")
	var none context.Context
	lib := f.library()
	o := options(f.Decode)
	for name, attach := range map[string]func() (*llamacpp.Session, error){
		"context":         func() (*llamacpp.Session, error) { return llamacpp.Attach(none, store, lib, 1, o) },
		"store":           func() (*llamacpp.Session, error) { return llamacpp.Attach(ctx, nil, lib, 1, o) },
		"library":         func() (*llamacpp.Session, error) { return llamacpp.Attach(ctx, store, nil, 1, o) },
		"empty library":   func() (*llamacpp.Session, error) { return llamacpp.Attach(ctx, store, &llamacpp.Library{}, 1, o) },
		"context pointer": func() (*llamacpp.Session, error) { return llamacpp.Attach(ctx, store, lib, 0, o) },
	} {
		if s, err := attach(); err == nil || s != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := llamacpp.Bind(nil); err == nil {
		t.Error("Bind of no lookup")
	}
	s := attach(t, store, f, nil)
	prompt := kv.Tokens(make([]kv.Token, 40)...)
	_, saved := s.Save(none, prompt, 0)
	_, restored := s.Restore(none, prompt, 0)
	for name, err := range map[string]error{"save": saved, "restore": restored, "prefill": s.Prefill(none, prompt, 0, 0), "capture": s.Capture(none, prompt, 0)} {
		if err == nil {
			t.Errorf("%s without a context", name)
		}
	}
}

// A prompt that has no room is refused before it is evaluated, and the refusal says how much too long it is.
func TestPromptLongerThanContext(t *testing.T) {
	ctx, store := context.Background(), kit.OpenStore(t)
	for _, kind := range []string{"plain", "window"} {
		f := kinds(kind)
		f.contextLen = 64
		s := attach(t, store, f, nil)
		err := s.Prefill(ctx, kv.Tokens(make([]kv.Token, 65)...), 0, 0)
		if !errors.Is(err, llamacpp.ErrTooLong) || f.decode != 0 {
			t.Errorf("%s: %v, %d tokens were evaluated", kind, err, f.decode)
		}
		t.Log(err)
		if err := s.Prefill(ctx, kv.Tokens(make([]kv.Token, 64)...), 0, 0); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// An option that makes no sense is an error that names it and its value, and nothing is evaluated.
func TestOptionsWithoutSense(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		change      func(*llamacpp.Options)
		field, says string
	}{
		{func(o *llamacpp.Options) { o.Put.KeepStates = -7 }, "Put.KeepStates", "-7"},
		{func(o *llamacpp.Options) { o.BlockTokens = -1 }, "BlockTokens", "-1"},
		{func(o *llamacpp.Options) { o.CaptureTokens = -2 }, "CaptureTokens", "-2"},
		{func(o *llamacpp.Options) { o.CaptureBytes = -3 }, "CaptureBytes", "-3"},
		{func(o *llamacpp.Options) { o.Align = -4 }, "Align", "-4"},
		{func(o *llamacpp.Options) { o.RopeBase = -10000 }, "RopeBase", "-10000"},
		{func(o *llamacpp.Options) { o.RopeScale = nan }, "RopeScale", "NaN"},
		{func(o *llamacpp.Options) { o.Adapters = []kv.Adapter{{Scale: nan}} }, "Adapters", "NaN"},
		{func(o *llamacpp.Options) { o.Put.Codec = 99 }, "Codec", "99"},
	} {
		f := kinds("plain")
		o := options(f.Decode)
		c.change(&o)
		_, err := llamacpp.Attach(t.Context(), kit.OpenStore(t), f.library(), f.address(), o)
		if err == nil || !strings.Contains(err.Error(), c.field) || !strings.Contains(err.Error(), c.says) || f.decode != 0 {
			t.Errorf("%s of %s: %v, %d decoded", c.field, c.says, err, f.decode)
		}
	}
	o := options(nil)
	o.Put.KeepStates = -1
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
}
