package llamacpp_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

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
