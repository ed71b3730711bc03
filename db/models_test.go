package db

import (
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Two versions of a model that take turns in being the current one fill no log.
func TestModelsTakingTurns(t *testing.T) {
	o := options()
	o.Budget, o.SegmentBytes = 8<<20, 256<<10
	dir := t.TempDir()
	s := open(t, dir, o)
	a, b := plain(), plain()
	for layer := range 60 {
		a.Tensors = append(a.Tensors, kv.Tensor{Layer: 2 + layer, Role: kv.RoleK, DType: kv.F16, Width: 32})
	}
	b.Tensors = append(b.Tensors, a.Tensors[len(b.Tensors):]...)
	b.Weights[0] = 1
	for range 4000 {
		model(t, s, a)
		model(t, s, b)
	}
	if n, _, parts := occupied(t, dir); n > o.Budget {
		t.Fatalf("%d bytes are occupied of a budget of %d: %v", n, o.Budget, parts)
	}
	if n := s.eng.wal.Bytes(); n > o.Budget/2 {
		t.Fatalf("the log takes %d bytes of a budget of %d", n, o.Budget)
	}
}

// The version of a model that was registered last is the current one after a kill, too, however much was used, and not put,
// before another one was registered: uses are in no frame of the log.
func TestCurrentVersionAfterAKill(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	one, two := plain(), plain()
	two.Weights[0] = 2
	m := model(t, s, one)
	p := kv.Prompt{Tokens: tokens(1, 16)}
	put(t, m, p)
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		expect(t, m, p, 16)
	}
	put(t, m, kv.Prompt{Tokens: tokens(2, 16)}) // with the uses
	model(t, s, two)
	again := open(t, copyStore(t, dir), options())
	fp := model(t, again, one).Fingerprint() // the app went back to it
	models, err := Collect(again.Models())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range models {
		if want := m.Fingerprint == fp; m.Latest != want {
			t.Errorf("the version with weights %d: current = %t, expected %t", m.Descriptor.Weights[0], m.Latest, want)
		}
	}
	before := again.eng.wal.LastLSN()
	if model(t, again, one); again.eng.wal.LastLSN() != before {
		t.Error("the current version is registered once more")
	}
}
