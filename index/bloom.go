package index

import (
	"encoding/binary"
	"iter"
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/kv"
)

// Bloom is a Bloom filter over keys: it answers "not stored" for certain and "stored" perhaps. Safe for concurrent use:
// whoever calls MayContain after an Add of that key returned gets true.
//
// For n keys and the false-positive rate p it has m = -n ln p / (ln 2)² bits and k = m/n ln 2 probes (Bloom 1970), so that
// at n keys half of its bits are set. The probes are h1 + i h2 (Kirsch, Mitzenmacher 2006), with h1 = murmur3 and h2 =
// xxhash of the key. Keys are hashes with the store's seed in them already, so the filter needs no seed of its own.
type Bloom struct {
	words []uint64     // read and changed by atomic operations as soon as somebody else can see the filter
	bits  uint64       // 64 len(words)
	k     int          // probes
	n     int          // how many keys it holds at the rate that it was made for: half of its bits are set then
	keys  atomic.Int64 // adds that changed a bit
	set   atomic.Int64 // bits set
}

// Bounds of what NewBloom makes and ReadBloom accepts.
const (
	maxBloomBits   = 1 << 33 // 1 GiB
	maxBloomProbes = 64
)

// NewBloom returns a filter for n keys at the false-positive rate p, between 0 and 1.
func NewBloom(n int, p float64) *Bloom {
	if !(p > 0 && p < 1) {
		panic("index: a Bloom filter's false-positive rate lies between 0 and 1")
	}
	keys := float64(max(n, 1))
	m := min(math.Ceil(-keys*math.Log(p)/(math.Ln2*math.Ln2)), maxBloomBits)
	words := int((uint64(m) + 63) / 64)
	k := int(math.Round(m / keys * math.Ln2))
	n = int(float64(words*64) * math.Ln2 * math.Ln2 / -math.Log(p))
	return newBloom(words, min(max(k, 1), maxBloomProbes), n)
}

func newBloom(words, k, n int) *Bloom {
	return &Bloom{words: make([]uint64, words), bits: uint64(words) * 64, k: k, n: n}
}

func bloomHashes(k *kv.Key) (h1, h2 uint64) {
	// An even step would visit the same places again and again.
	return murmur(k), xxhash.Sum64(k[:]) | 1
}

// murmur is murmur3.Sum64 of a key: the first half of MurmurHash3 x64 128 (Appleby, public domain) for the one length
// that keys have. The library's takes an allocation for each key.
func murmur(k *kv.Key) uint64 {
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	h1 := bits.RotateLeft64(binary.LittleEndian.Uint64(k[:8])*c1, 31) * c2
	h1 = bits.RotateLeft64(h1, 27)*5 + 0x52dce729
	h2 := bits.RotateLeft64(binary.LittleEndian.Uint64(k[8:])*c2, 33) * c1
	h2 = (bits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	h1 ^= uint64(len(k))
	h2 ^= uint64(len(k))
	h1 += h2
	h2 += h1
	return mix(h1) + mix(h2)
}

func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// place maps a hash to a bit, by its high bits (Lemire 2019).
func (b *Bloom) place(h uint64) (word uint64, mask uint64) {
	bit, _ := bits.Mul64(h, b.bits)
	return bit >> 6, 1 << (bit & 63)
}

// Add puts a key into the filter. It never blocks.
func (b *Bloom) Add(k kv.Key) {
	h, step := bloomHashes(&k)
	fresh := int64(0)
	for range b.k {
		i, mask := b.place(h)
		w := &b.words[i]
		if atomic.LoadUint64(w)&mask == 0 && atomic.OrUint64(w, mask)&mask == 0 {
			fresh++
		}
		h += step
	}
	if fresh > 0 {
		b.set.Add(fresh)
		b.keys.Add(1)
	}
}

// FillBloom is NewBloom with keys in it. As long as nobody else sees the filter, its bits need no atomic operations, which
// are most of what Add takes.
func FillBloom(n int, p float64, keys iter.Seq[kv.Key]) *Bloom {
	b := NewBloom(n, p)
	set, added := 0, int64(0)
	for k := range keys {
		before := set
		h, step := bloomHashes(&k)
		for range b.k {
			i, mask := b.place(h)
			old := b.words[i]
			b.words[i] = old | mask
			set += bits.OnesCount64(mask &^ old)
			h += step
		}
		if set > before {
			added++
		}
	}
	b.set.Store(int64(set))
	b.keys.Store(added)
	return b
}

// MayContain is false if the key was never added.
func (b *Bloom) MayContain(k kv.Key) bool {
	h, step := bloomHashes(&k)
	for range b.k {
		i, mask := b.place(h)
		if atomic.LoadUint64(&b.words[i])&mask == 0 {
			return false
		}
		h += step
	}
	return true
}

// Bits is the size of the filter.
func (b *Bloom) Bits() uint64 { return b.bits }

// Keys is how many different keys were added, but for those whose bits were all set by others.
func (b *Bloom) Keys() int64 { return b.keys.Load() }

// Fill is the share of bits that are set: 0.5 at capacity.
func (b *Bloom) Fill() float64 { return float64(b.set.Load()) / float64(b.bits) }

// EstimatedFPR is the chance that a key which was never added is found: all probes meet set bits.
func (b *Bloom) EstimatedFPR() float64 { return math.Pow(b.Fill(), float64(b.k)) }
