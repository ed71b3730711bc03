package kv_test

import (
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/collide"
	"github.com/dormousekv/dormouse/kv"
)

// Names of scopes are chosen by strangers, and no record holds them to be compared: nobody can make a name that stands for
// another one's scope, not even without knowing the seed.
func TestScopeNamesThatCollide(t *testing.T) {
	const tagAndSeed = 1 + 16
	name := strings.Repeat("tenant of some name ", 4)
	twin := []byte(name)
	collide.Twin(twin, 32-tagAndSeed)
	if string(twin) == name {
		t.Fatal("the twin is the name itself")
	}
	for i := range byte(4) {
		h := kv.NewHasher(kv.Seed{i, 1, 2, 3, 4, 5, 6, 7, i})
		if h.Scope(name) == h.Scope(string(twin)) {
			t.Fatalf("seed %d: %q and %q are one scope", i, name, twin)
		}
	}
}
