package catalog_test

import (
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// Two versions of a model that take turns in being the current one fill no log.
func TestModelsTakingTurns(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 8<<20, 256<<10
	dir := t.TempDir()
	s := storetest.Open(t, dir, o)
	a, b := crashtest.Plain(), crashtest.Plain()
	for layer := range 60 {
		a.Tensors = append(a.Tensors, kv.Tensor{Layer: 2 + layer, Role: kv.RoleK, DType: kv.F16, Width: 32})
	}
	b.Tensors = append(b.Tensors, a.Tensors[len(b.Tensors):]...)
	b.Weights[0] = 1
	for range 4000 {
		storetest.Model(t, s, a)
		storetest.Model(t, s, b)
	}
	if n, _, parts := storetest.Occupied(t, dir); n > o.Budget {
		t.Fatalf("%d bytes are occupied of a budget of %d: %v", n, o.Budget, parts)
	}
	if n := storetest.LogBytes(t, s); n > o.Budget/2 {
		t.Fatalf("the log takes %d bytes of a budget of %d", n, o.Budget)
	}
}

// The version of a model that was registered last is the current one after a kill, too, however much was used, and not put,
// before another one was registered: uses are in no frame of the log.
func TestCurrentVersionAfterAKill(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	one, two := crashtest.Plain(), crashtest.Plain()
	two.Weights[0] = 2
	m := storetest.Model(t, s, one)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 16)}
	storetest.Put(t, m, p)
	storetest.OK(t, s.Checkpoint(t.Context()))
	for range 1000 {
		storetest.Expect(t, m, p, 16)
	}
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 16)}) // with the uses
	storetest.Model(t, s, two)
	again := storetest.Open(t, storetest.Copy(t, dir), storetest.Options())
	fp := storetest.Model(t, again, one).Fingerprint() // the app went back to it
	models := storetest.Must(db.Collect(again.Models()))(t)
	for _, m := range models {
		if want := m.Fingerprint == fp; m.Latest != want {
			t.Errorf("the version with weights %d: current = %t, expected %t", m.Descriptor.Weights[0], m.Latest, want)
		}
	}
	before := storetest.Log(t, again).LastLSN
	if storetest.Model(t, again, one); storetest.Log(t, again).LastLSN != before {
		t.Error("the current version is registered once more")
	}
}
