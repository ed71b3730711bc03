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
