package kv_test

import (
	"encoding/binary"
	"math"
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

// Adapters are in no record either: nobody can make some that stand for another one's.
func TestAdaptersThatCollide(t *testing.T) {
	mine := []kv.Adapter{{Hash: kv.Hash{1, 2, 3}, Scale: 1}, {Hash: kv.Hash{4, 5, 6}, Scale: 0.5}, {Hash: kv.Hash{7, 8, 9}, Scale: 2}}
	others := twinAdapters(mine)
	for i := range byte(4) {
		h := kv.NewHasher(kv.Seed{i, 1, 2, 3, 4, 5, 6, 7, i})
		if h.Root(kv.Fingerprint{i}, mine) == h.Root(kv.Fingerprint{i}, others) {
			t.Fatalf("seed %d: %v and %v have one root", i, mine, others)
		}
	}
}

// twinAdapters are other adapters than those, with the same murmur3 hash behind tag, seed and fingerprint.
func twinAdapters(adapters []kv.Adapter) []kv.Adapter {
	const head, size = 1 + 16 + 16, 16 + 4
	var b []byte
	for _, a := range adapters {
		b = binary.LittleEndian.AppendUint32(append(b, a.Hash[:]...), math.Float32bits(a.Scale))
	}
	collide.Twin(b, 48-head)
	out := make([]kv.Adapter, len(adapters))
	for i := range out {
		out[i] = kv.Adapter{
			Hash: kv.Hash(b[i*size : i*size+16]), Scale: math.Float32frombits(binary.LittleEndian.Uint32(b[i*size+16:])),
		}
	}
	return out
}
