//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// verdict is a cell of the matrix: a refusal, or how far the logits are from those of a cold run.
type verdict struct {
	Refused string // by what; empty: not
	Warned  bool   // by Attach
	Tokens  int    // restored
	Off     float64
	Floor   float64 // how far cold runs are from one another that evaluate the prompt in other batches
}

func (v verdict) String() string {
	switch {
	case v.Refused != "":
		return v.Refused
	case v.Tokens == 0:
		return "nothing restored"
	}
	text := fmt.Sprintf("%.1e of %.1e", v.Off, v.Floor)
	if v.Warned {
		text += ", with a warning in the log"
	}
	return text
}

// worse is the one of two verdicts that is further off.
func (v verdict) worse(w verdict) verdict {
	if v.Tokens == 0 || w.Tokens > 0 && w.Off-w.Floor > v.Off-v.Floor {
		return w
	}
	return v
}

// refusal names what an error is.
func refusal(err error) string {
	for name, is := range map[string]error{"identity": llamacpp.ErrIdentity, "lineage": llamacpp.ErrLineage, "positions": llamacpp.ErrPositions} {
		if errors.Is(err, is) {
			return name
		}
	}
	return ""
}

// field is a model on which faults are tried.
type field struct {
	*rig
	ctx    context.Context
	x      canaryCase
	tokens []kv.Token // of the prompt that is stored
	cold   map[string][]float32
	log    bytes.Buffer // what the last Attach warned of
}

const (
	storedTokens = 136
	firstSave    = 64 // of a state that cannot be cut, the one there is restored, too
)

func newField(t *testing.T, lib *llama.Lib, api *llamacpp.Library, x canaryCase) *field {
	f := &field{rig: rigFor(t, lib, api, x.path, x.opt, db.Options{Codec: quant.Raw}), ctx: context.Background(), x: x, cold: map[string][]float32{}}
	f.tokens = randomTokens(1, storedTokens)
	return f
}

func (f *field) attach(c *llama.Context) (*llamacpp.Session, error) {
	f.log.Reset()
	o := llamacpp.Options{Decode: c.Decode, Logger: slog.New(slog.NewTextHandler(&f.log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	said(&o)
	return llamacpp.Attach(f.ctx, f.store, f.api, c.Pointer(), o)
}

// must fails the test.
func (f *field) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// fresh gives the field an empty store.
func (f *field) fresh() {
	f.t.Helper()
	f.must(f.store.Close())
	f.store = kit.OpenStoreAt(f.t, f.store.Dir()+"-next", db.Options{Codec: quant.Raw})
}

// fill evaluates and saves the prompt.
func (f *field) fill(c *llama.Context) {
	f.t.Helper()
	s, err := f.attach(c)
	f.must(err)
	from := 0
	for _, n := range []int{firstSave, storedTokens} {
		prompt := kv.Tokens(f.tokens[:n]...)
		f.must(s.Prefill(f.ctx, prompt, from, 0))
		_, err = s.Save(f.ctx, prompt, 0)
		f.must(err)
		from = n
	}
}

// made makes contexts with other options.
func (f *field) made(change func(*llama.ContextOptions)) func() *llama.Context {
	o := f.opt
	change(&o)
	return func() *llama.Context {
		f.t.Helper()
		return newContext(f.t, f.model, o)
	}
}

func (f *field) plain() *llama.Context { return f.made(func(*llama.ContextOptions) {})() }

// run is the logits of a cold run in batches of that size. what names how the contexts are made.
func (f *field) run(what string, make func() *llama.Context, prompt []kv.Token, batch int) []float32 {
	f.t.Helper()
	key := fmt.Sprint(what, prompt, batch)
	if f.cold[key] == nil {
		c := make()
		f.decode(c, prompt, 0, batch)
		f.cold[key] = c.Logits(-1)
		c.Close()
	}
	return f.cold[key]
}

// tried restores prompts that go on from one that may be stored, in contexts that are made so, and compares with cold runs there.
func (f *field) tried(what string, make func() *llama.Context, stored []kv.Token) verdict {
	f.t.Helper()
	v := f.worst(what, make, stored)
	if v.Off > v.Floor {
		f.t.Errorf("%s, %s: %d tokens are restored, and the logits are off by %.3g, with other batches by %.3g", f.x.name, what, v.Tokens, v.Off, v.Floor)
	}
	return v
}

// worst is tried without a judgement.
func (f *field) worst(what string, make func() *llama.Context, stored []kv.Token) (v verdict) {
	f.t.Helper()
	for _, shared := range []int{len(stored), len(stored) - 50} {
		w := f.compared(what, make, slices.Concat(stored[:shared], randomTokens(99, 24)))
		if w.Refused != "" {
			return w
		}
		v = v.worse(w)
	}
	return v
}

func (f *field) compared(what string, make func() *llama.Context, prompt []kv.Token) verdict {
	f.t.Helper()
	c := make()
	defer c.Close()
	s, err := f.attach(c)
	if why := refusal(err); why != "" {
		return verdict{Refused: why}
	}
	f.must(err)
	warned := f.log.Len() > 0
	got, err := s.Restore(f.ctx, kv.Tokens(prompt...), 0)
	f.must(err)
	f.must(s.Prefill(f.ctx, kv.Tokens(prompt...), got.Tokens, 0))
	cold := f.run(what, make, prompt, batchTokens)
	floor := max(difference(cold, f.run(what, make, prompt, 25)), difference(cold, f.run(what, make, prompt, 10)))
	return verdict{Warned: warned, Tokens: got.Tokens, Off: difference(cold, c.Logits(-1)), Floor: floor}
}
