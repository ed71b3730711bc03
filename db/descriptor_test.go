package db

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/internal/collide"
	"github.com/dormousekv/dormouse/kv"
)

// A fingerprint is a hash that does not resist collisions, of text that comes from model files: two descriptors with one
// fingerprint are not taken for one model.
func TestDescriptorsThatCollide(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	d := plain()
	scaling := bytes.Repeat([]byte("yarn "), 8)
	d.RoPE.Scaling = string(scaling)
	collide.Twin(scaling, 0) // with these names it is hashed from offset 64 on
	other := d
	other.RoPE.Scaling = string(scaling)
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
