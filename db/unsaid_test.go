package db

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A model is registered only by a descriptor that says which one it is.
func TestModelIsSaid(t *testing.T) {
	s := open(t, t.TempDir(), options())
	for field, forget := range map[string]func(*kv.Descriptor){
		"Weights":      func(d *kv.Descriptor) { d.Weights = kv.Hash{} },
		"Architecture": func(d *kv.Descriptor) { d.Architecture = "" },
		"Tokenizer":    func(d *kv.Descriptor) { d.Tokenizer = kv.Hash{} },
		"RoPE.Type":    func(d *kv.Descriptor) { d.RoPE.Type = "" },
	} {
		d := plain()
		forget(&d)
		if _, err := s.Model(ctx, d); !errors.Is(err, kv.ErrDescriptor) || !strings.Contains(err.Error(), field+" is not said") {
			t.Errorf("without %s: %v", field, err)
		}
	}
	if all, err := s.Models(); err != nil || len(all) > 0 {
		t.Errorf("%d models are registered (%v)", len(all), err)
	}
}

// Older releases took a descriptor that leaves out which model it is of. A store that has one opens, gives back what was put, and
// can be rebuilt and repaired.
func TestUnsaidModelOfAnOlderRelease(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	d := plain()
	d.Weights, d.Architecture, d.Tokenizer, d.RoPE = kv.Hash{}, "", kv.Hash{}, kv.RoPE{}
	d, err := d.Normal()
	if err != nil {
		t.Fatal(err)
	}
	e := s.eng
	e.logMu.Lock()
	op := newOpModel(&d, e.clock.Add(1))
	_, err = e.logStateLocked(frameModel, op, func(st *smallState) { st.addModel(op) })
	e.logMu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	fp, p := d.Fingerprint(), kv.Tokens(tokens(1, 48)...)
	check := func(dir string) {
		t.Helper()
		s := open(t, dir, options())
		m, err := s.ModelOf(fp)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, m, p, 48)
		if r, err := s.Verify(ctx, VerifyOptions{}); err != nil || len(r.Damage) > 0 {
			t.Errorf("verify: %+v, %v", r, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	m, err := s.ModelOf(fp)
	if err != nil {
		t.Fatal(err)
	}
	put(t, m, p)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(dir)
	if err := os.Remove(filepath.Join(dir, indexName)); err != nil {
		t.Fatal(err)
	}
	check(dir)
	repaired := filepath.Join(t.TempDir(), "repaired")
	if _, err := Repair(ctx, dir, repaired, RepairOptions{}); err != nil {
		t.Fatal(err)
	}
	check(repaired)
}
