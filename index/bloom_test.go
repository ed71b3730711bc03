package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spaolacci/murmur3"
	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// randomKey is a key as hashing makes them.
func randomKey(r *rand.Rand) (k kv.Key) {
	binary.LittleEndian.PutUint64(k[:], r.Uint64())
	binary.LittleEndian.PutUint64(k[8:], r.Uint64())
	return k
}

// TestBloomSize is the formula, at the size that the design names.
func TestBloomSize(t *testing.T) {
	b := NewBloom(36465, 0.001)
	if b.Bits() != 524288 || b.k != 10 || b.n != 36465 {
		t.Errorf("%d bits, %d probes, %d keys; want 524288, 10, 36465", b.Bits(), b.k, b.n)
	}
	rapid.Check(t, func(t *rapid.T) {
		n, p := rapid.IntRange(0, 100000).Draw(t, "n"), rapid.Float64Range(1e-9, 0.9).Draw(t, "p")
		b := NewBloom(n, p)
		if b.n < n || b.k < 1 || b.Bits()%64 != 0 || float64(b.Bits()) > 64+1+float64(max(n, 1))*-math.Log(p)/math.Ln2/math.Ln2 {
			t.Fatalf("%d keys at %g: %d bits, %d probes, capacity %d", n, p, b.Bits(), b.k, b.n)
		}
	})
}

// TestMurmur: the hash is the library's.
func TestMurmur(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 1000 {
		k := randomKey(r)
		if got, want := murmur(&k), murmur3.Sum64(k[:]); got != want {
			t.Fatalf("murmur(%s) = %x, want %x", k, got, want)
		}
	}
}

// TestBloomFalsePositives: at design fill the rate is what was asked for, and what EstimatedFPR says.
func TestBloomFalsePositives(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	b := NewBloom(36465, 0.001)
	for range b.n {
		b.Add(randomKey(r))
	}
	const probes = 2_000_000
	hits := 0
	for range probes {
		if b.MayContain(randomKey(r)) {
			hits++
		}
	}
	rate := float64(hits) / probes
	t.Logf("%d keys: fill %.4f, false positives %.6f, estimated %.6f", b.Keys(), b.Fill(), rate, b.EstimatedFPR())
	if rate > 0.0011 || math.Abs(b.Fill()-0.5) > 0.01 || math.Abs(b.EstimatedFPR()-rate) > 0.0002 {
		t.Error("not as designed")
	}
}

// TestFillBloom: filling a filter at once or key by key makes the same one.
func TestFillBloom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, p := rapid.IntRange(0, 500).Draw(t, "n"), rapid.Float64Range(1e-4, 0.5).Draw(t, "p")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var keys []kv.Key
		for range rapid.IntRange(0, 1000).Draw(t, "keys") {
			if len(keys) > 0 && r.IntN(4) == 0 {
				keys = append(keys, keys[r.IntN(len(keys))])
			} else {
				keys = append(keys, randomKey(r))
			}
		}
		want, got := NewBloom(n, p), FillBloom(n, p, slices.Values(keys))
		for _, k := range keys {
			want.Add(k)
		}
		if !bytes.Equal(encodeBloom(got, testUUID, 1), encodeBloom(want, testUUID, 1)) || got.Fill() != want.Fill() {
			t.Fatalf("%d keys, fill %g; want %d, %g", got.Keys(), got.Fill(), want.Keys(), want.Fill())
		}
	})
}

// TestBloomNoFalseNegatives: a key is found from the moment that its Add returned, whoever adds beside it.
func TestBloomNoFalseNegatives(t *testing.T) {
	b := NewBloom(2000, 0.01)
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(g, 1))
			var keys []kv.Key
			for range 1000 {
				k := randomKey(r)
				b.Add(k)
				keys = append(keys, k)
				if !b.MayContain(k) || !b.MayContain(keys[r.IntN(len(keys))]) {
					t.Error("false negative")
				}
			}
		})
	}
	wg.Wait()
	set := 0
	for i := range b.words {
		set += bits.OnesCount64(atomic.LoadUint64(&b.words[i]))
	}
	if got := int(math.Round(b.Fill() * float64(b.Bits()))); got != set {
		t.Errorf("%d bits set, Fill says %d", set, got)
	}
	if b.Keys() > 4000 || b.Keys() < 3500 {
		t.Errorf("%d keys", b.Keys())
	}
}

// TestBloomFile: a filter comes back as it was; any changed bit, any other length and any other store is noticed.
func TestBloomFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "bloom")
	if _, _, err := ReadBloom(vfs.OS, path, testUUID); !errors.Is(err, ErrMissing) {
		t.Error("missing:", err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	b := NewBloom(30, 0.01)
	var keys []kv.Key
	for range 30 {
		keys = append(keys, randomKey(r))
		b.Add(keys[len(keys)-1])
	}
	ok(t, WriteBloom(vfs.OS, dir, path, b, testUUID, 77))
	got, lsn, err := ReadBloom(vfs.OS, path, testUUID)
	if err != nil || lsn != 77 {
		t.Fatal(lsn, err)
	}
	if got.Bits() != b.Bits() || got.k != b.k || got.n != b.n || got.Keys() != b.Keys() || got.Fill() != b.Fill() {
		t.Error("another filter")
	}
	for _, k := range keys {
		if !got.MayContain(k) {
			t.Error("false negative")
		}
	}
	if _, _, err := ReadBloom(vfs.OS, path, kv.UUID{}); !errors.Is(err, ErrForeign) || errors.Is(err, damage.ErrCorrupt) {
		t.Error("foreign:", err)
	}

	clean := must(os.ReadFile(path))(t)
	for off := range clean {
		for bit := range 8 {
			bad := slices.Clone(clean)
			bad[off] ^= 1 << bit
			_, _, err := decodeBloom(path, bad, testUUID)
			if !errors.Is(err, damage.ErrCorrupt) {
				t.Fatalf("bit %d of byte %d: %v", bit, off, err)
			}
			if isVersion := off >= 8 && off < 12; isVersion != errors.Is(err, ErrVersion) {
				t.Fatalf("bit %d of byte %d: %v", bit, off, err)
			}
		}
	}
	for n := range clean {
		if _, _, err := decodeBloom(path, clean[:n], testUUID); !errors.Is(err, damage.ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	if _, _, err := decodeBloom(path, append(slices.Clone(clean), make([]byte, 8)...), testUUID); !errors.Is(err, damage.ErrCorrupt) {
		t.Fatal("longer:", err)
	}
}
