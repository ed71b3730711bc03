package db

import (
	"errors"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A handle on a retired model is none until the model is registered again; then it is its own again.
func TestHandleOfARetiredModel(t *testing.T) {
	s := open(t, t.TempDir(), options())
	d := plain()
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 48)...)
	put(t, m, p)
	if err := s.Retire(ctx, m.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Put(ctx, p, filled(d, &p, 0, 48), PutOptions{}); !errors.Is(err, ErrRetired) {
		t.Errorf("put for a retired model: %v", err)
	}
	x := model(t, s, d)
	expect(t, x, p, 0)
	put(t, m, p)
	expect(t, m, p, 48)
	if err := errors.Join(s.Suspend(ctx), s.Resume(ctx)); err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 48)
}

// registerAsBefore registers a model that is refused today, as an older release did.
func registerAsBefore(t *testing.T, s *Store, d kv.Descriptor) {
	t.Helper()
	normal, err := d.Normal()
	if err != nil {
		t.Fatal(err)
	}
	old := newOpModel(&normal, s.eng.clock.Add(1))
	s.eng.logMu.Lock()
	defer s.eng.logMu.Unlock()
	if _, err := s.eng.logStateLocked(frameModel, old, func(st *smallState) { st.addModel(old) }); err != nil {
		t.Fatal(err)
	}
}

// A handle outlives Suspend and Resume, also on a model without tensors.
func TestModelWithoutTensorsAfterResume(t *testing.T) {
	s := open(t, t.TempDir(), options())
	for i, tensors := range [][]kv.Tensor{nil, {}} {
		d := toy(kv.Descriptor{Name: "none", BlockTokens: 16, Tensors: tensors, Shards: i + 1})
		registerAsBefore(t, s, d)
		m := model(t, s, d)
		put(t, m, kv.Tokens(tokens(1, 48)...))
		for range 2 {
			if err := s.Suspend(ctx); err != nil {
				t.Fatal(err)
			}
			if err := s.Resume(ctx); err != nil {
				t.Fatal(err)
			}
			expect(t, m, kv.Tokens(tokens(1, 48)...), 48)
		}
	}
}

// What a caller does with its descriptor later is nothing to the store.
func TestDescriptorIsCopied(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	d := windowed(20)
	want := d
	want.Groups, want.Tensors = slices.Clone(d.Groups), slices.Clone(d.Tensors)
	m := model(t, s, d)
	fp := m.Fingerprint()
	d.Groups[1].Window = 1
	d.Tensors[0].Width = 64
	p := kv.Tokens(tokens(1, 48)...)
	if _, err := m.Put(ctx, p, filled(want, &p, 0, 48), PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, options())
	m = model(t, s, want)
	if n, why, err := m.Probe(ctx, p, MatchOptions{}); m.Fingerprint() != fp || err != nil || n != 48 {
		t.Errorf("model %s, was %s: %d tokens (%v, %v)", m.Fingerprint(), fp, n, why, err)
	}
}

// A model that an older release registered, whose descriptor would be refused today, is there as ever; a new one is not made.
func TestModelOfAnOlderRelease(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	p := kv.Tokens(tokens(1, 48)...)
	for _, change := range []func(*kv.Descriptor){
		func(d *kv.Descriptor) { d.Name, d.Weights = "", kv.HashOf("no name") },
		func(d *kv.Descriptor) { d.Weights, d.Tensors[1] = kv.HashOf("two of one"), d.Tensors[0] },
		func(d *kv.Descriptor) { d.RoPE.Type = "neox" },
	} {
		d := plain()
		change(&d)
		if _, err := s.Model(ctx, d); !errors.Is(err, kv.ErrDescriptor) {
			t.Errorf("a new model: %v", err)
		}
		registerAsBefore(t, s, d)
		put(t, model(t, s, d), p)
		for range 2 { // from the log, then from its head
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if r, err := Verify(ctx, dir, VerifyOptions{}); err != nil || len(r.Damage) > 0 {
				t.Fatalf("%v, %v", r.Damage, err)
			}
			s = open(t, dir, options())
			expect(t, model(t, s, d), p, 48)
		}
	}
	stateless := toy(kv.Descriptor{Name: "nothing to store"})
	if _, err := s.Model(ctx, stateless); !errors.Is(err, kv.ErrDescriptor) {
		t.Errorf("no tensors: %v", err)
	}
}
