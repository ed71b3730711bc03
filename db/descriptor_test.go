package db

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/internal/collide"
	"github.com/dormousekv/dormouse/kv"
)

// A fingerprint is a hash that does not resist collisions, of text that comes from model files: two descriptors with one
// fingerprint are not taken for one model.
func TestDescriptorsThatCollide(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	d, other := twinDescriptors(0)
	m := model(t, s, d)
	n, err := other.Normal()
	if err != nil || n.Fingerprint() != m.Fingerprint() {
		t.Fatalf("the twins have two fingerprints (%v)", err)
	}
	for range 2 {
		if _, err := s.Model(ctx, other); !errors.Is(err, kv.ErrDescriptor) {
			t.Errorf("another model of the same fingerprint: %v", err)
		}
		if got := model(t, s, d).Descriptor(); got.RoPE.Scaling != d.RoPE.Scaling {
			t.Fatal("another model has taken the place of the first")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, options())
	}
}

// twinDescriptors are two models with one fingerprint.
func twinDescriptors(i int) (d, other kv.Descriptor) {
	d = plain()
	d.Architecture = "test of 16 bytes" // so that the scaling is hashed from offset 80 on, where a block begins
	d.Weights[0], d.Weights[1] = byte(i), byte(i>>8)
	scaling := bytes.Repeat([]byte("yarn "), 8)
	d.RoPE.Scaling = string(scaling)
	collide.Twin(scaling, 0)
	other = d
	other.RoPE.Scaling = string(scaling)
	return d, other
}

// Nor are they when both are registered at the same time.
func TestDescriptorsThatCollideAtOnce(t *testing.T) {
	s := open(t, t.TempDir(), options())
	for i := range 300 {
		d, other := twinDescriptors(i)
		var wg sync.WaitGroup
		var errs [2]error
		for k, x := range []kv.Descriptor{d, other} {
			wg.Go(func() { _, errs[k] = s.Model(ctx, x) })
		}
		wg.Wait()
		if errs[0] == nil && errs[1] == nil {
			t.Fatalf("pair %d: both are models of the store", i)
		}
		if errs[0] != nil && errs[1] != nil {
			t.Fatalf("pair %d: neither is: %v, %v", i, errs[0], errs[1])
		}
	}
}

// A handle on a retired model is none on the next one of the same fingerprint; registered again, it is its own again.
func TestRetiredModelAndItsTwin(t *testing.T) {
	s := open(t, t.TempDir(), options())
	d, other := twinDescriptors(0)
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 48)...)
	put(t, m, p)
	if err := s.Retire(ctx, m.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	x := model(t, s, other)
	if _, err := m.Put(ctx, p, filled(d, &p, 0, 48), PutOptions{}); !errors.Is(err, ErrRetired) {
		t.Errorf("put for a retired model: %v", err)
	}
	expect(t, x, p, 0)
	if err := s.Retire(ctx, m.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	model(t, s, d)
	put(t, m, p)
	expect(t, m, p, 48)
	if err := s.Suspend(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(ctx); err != nil {
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
