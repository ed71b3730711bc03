package kv_test

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A fixed store, model and prompt: two adapters, an image that begins in a shared block and ends in another, a scope that
// begins in the middle of a block, and a tail.
var (
	goldenSeed    = kv.Seed{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	goldenImage   = kv.Hash{0xaa, 0xbb, 15: 0xcc}
	goldenAdapter = []kv.Adapter{{Hash: kv.Hash{1}, Scale: 0.5}, {Hash: kv.Hash{2}, Scale: 1}}
)

func goldenPrompt() kv.Prompt {
	p := kv.Prompt{Adapters: goldenAdapter, Scope: "alice", ScopeStart: 24}
	for i := range 50 {
		p.Tokens = append(p.Tokens, kv.Token(i*i-3))
	}
	p.Spans = []kv.Span{{Start: 10, Len: 9, Hash: goldenImage}, {Start: 45, Len: 2, Hash: goldenImage}}
	return p
}

func goldenDescriptor() kv.Descriptor {
	return kv.Descriptor{
		Name: "not part of it", Weights: kv.Hash{1, 2, 3}, Architecture: "gemma3", Tokenizer: kv.Hash{4, 5},
		RoPE:    kv.RoPE{Type: "neox", Dims: 256, Base: 1e6, Scale: 0.125, Scaling: "linear", FreqFactors: kv.Hash{6}},
		Rotated: true, Shard: 1, Shards: 2, StateFormat: "v3", BlockTokens: 128,
		Groups: []kv.Group{{Kind: kv.All}, {Kind: kv.Window, Window: 512}, {Kind: kv.StateAt}},
		Tensors: []kv.Tensor{
			{Layer: 0, Role: kv.RoleK, DType: kv.F16, Width: 256},
			{Layer: 1, Role: kv.RoleV, DType: kv.Q8_0, Width: 128, Group: 1},
			{Layer: 2, Role: kv.RoleState, DType: kv.Bytes, Group: 2},
		},
	}
}

// golden pins what hash id 1 means, on every platform and for all time: keys in stores that exist were made with it. A
// change of any of these values needs a new hash id.
var golden = map[string]string{
	"fingerprint, empty": "1a0d959f2868150dbe935a092d4f730b",
	"fingerprint":        "c426a585313540e07944be229c8536d9",
	"root":               "012c853795c876b8a9296061e03f4384",
	"root, no adapters":  "d5317a28f58ee939abc1c56495a9b950",
	"scope alice":        "ec2e9928e9c0ecc3d8c6488b26543e64",
	"block 0":            "dd49a251b306dca37d9bf1675dc3d883",
	"block 1":            "b6972009a7a5ef22bd55faf3d1f9b52e",
	"block 2":            "269fe61546d99e44961be95db9f32566",
	"block 3":            "b5b17239c8c5160f992352fb22959596",
	"partial 2 to 30":    "d7492769dc64d14cd25579b33284201d",
	"opening":            "70dd6f26bfdf541f648ca194f805f4b6",
	"opening, scoped":    "8ebd576cc444bb65b275965e640ff3e1",
	"token hashes":       "1b1c3de4839a0da8dbb350476d445fcf",
}

func TestGoldenHashes(t *testing.T) {
	if kv.HashID != 1 {
		t.Fatalf("hash id %d: pin its values here, beside those of id 1", kv.HashID)
	}
	h, p, d := kv.NewHasher(goldenSeed), goldenPrompt(), goldenDescriptor()
	empty, err := kv.Descriptor{}.Normal()
	if err != nil {
		t.Fatal(err)
	}
	c := h.Chain(d.Fingerprint(), 16, &p)
	if c.Len() != 4 {
		t.Fatalf("%d blocks", c.Len())
	}
	scoped := p
	scoped.ScopeStart = 0
	got := map[string]string{
		"fingerprint, empty": empty.Fingerprint().String(),
		"fingerprint":        d.Fingerprint().String(),
		"root":               c.Root().String(),
		"root, no adapters":  h.Root(d.Fingerprint(), nil).String(),
		"scope alice":        h.Scope("alice").String(),
		"block 0":            c.Key(0).String(),
		"block 1":            c.Key(1).String(),
		"block 2":            c.Key(2).String(),
		"block 3":            c.Key(3).String(),
		"partial 2 to 30":    c.Partial(2, 30).String(),
		"opening":            c.Opening().String(),
		"opening, scoped":    h.Chain(d.Fingerprint(), 16, &scoped).Opening().String(),
		"token hashes":       kv.Key(h.AppendTokenHashes(nil, &p, 7, 15)).String(),
	}
	for name, value := range got {
		if golden[name] != value {
			t.Errorf("%q: %q,", name, value)
		}
	}
}

// The same values from the description alone, with a hash that reads bytes in one order everywhere.
func TestHashesAsDescribed(t *testing.T) {
	seed := binary.LittleEndian.Uint32(goldenSeed[:4])
	h, p, print := kv.NewHasher(goldenSeed), goldenPrompt(), kv.Fingerprint{9, 8, 7}
	u32 := func(v int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }
	key := func(parts ...[]byte) kv.Key { return kv.Key(murmur128(slices.Concat(parts...), seed)) }
	toks := func(from, to int) []byte {
		b := u32(to - from)
		for _, x := range p.Tokens[from:to] {
			b = append(b, u32(int(x))...)
		}
		return b
	}
	span := func(at, offset int, s kv.Span) []byte {
		return slices.Concat(u32(at), u32(offset), u32(s.Len), s.Hash[:])
	}

	scale := func(i int) []byte { return u32(int(math.Float32bits(goldenAdapter[i].Scale))) }
	adapted := sha256.Sum256(slices.Concat([]byte("R"), goldenSeed[:], print[:], goldenAdapter[0].Hash[:], scale(0), goldenAdapter[1].Hash[:], scale(1)))
	root := kv.Key(adapted[:16])
	if h.Root(print, nil) != key([]byte("R"), goldenSeed[:], print[:]) {
		t.Error("the root without adapters is not what is described")
	}
	named := sha256.Sum256(slices.Concat([]byte("S"), goldenSeed[:], []byte("alice")))
	scope := kv.Key(named[:16])
	block0 := key([]byte("B"), root[:], toks(0, 16), span(10, 0, p.Spans[0]))
	block1 := key([]byte("B"), block0[:], toks(16, 24), span(0, 6, p.Spans[0]))
	entered := key([]byte("E"), block1[:], scope[:])
	block2 := key([]byte("B"), entered[:], toks(24, 40))
	block3 := key([]byte("B"), block2[:], toks(40, 50), span(5, 0, p.Spans[1]))

	c := h.Chain(print, 16, &p)
	if c.Root() != root || h.Scope("alice") != kv.ScopeID(scope) {
		t.Error("root or scope is not what is described")
	}
	for i, want := range []kv.Key{block0, block1, block2, block3} {
		if c.Key(i) != want {
			t.Errorf("block %d: %s, described is %s", i, c.Key(i), want)
		}
	}

	var hashes []byte
	for pos := range 16 {
		b := u32(int(p.Tokens[pos]))
		if pos >= 10 {
			b = slices.Concat(b, u32(pos-10), u32(9), goldenImage[:])
		}
		sum := murmur32(b, binary.LittleEndian.Uint32(goldenSeed[4:8]))
		hashes = append(hashes, byte(sum>>8), byte(sum))
	}
	if got := h.AppendTokenHashes(nil, &p, 0, 16); !slices.Equal(got, hashes) {
		t.Errorf("token hashes %x, described are %x", got, hashes)
	}
	var shared kv.ScopeID
	if want := key([]byte("O"), root[:], shared[:], hashes); c.Opening() != want {
		t.Errorf("opening %s, described is %s", c.Opening(), want)
	}
}

// The reference is MurmurHash3: the values are those of its author's program (SMHasher) for these inputs.
func TestReferenceMurmur(t *testing.T) {
	const fox = "The quick brown fox jumps over the lazy dog"
	sum := murmur128([]byte(fox), 0)
	if h1, h2 := binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:]); h1 != 0xe34bbc7bbc071b6c || h2 != 0x7a433ca9c49a9347 {
		t.Errorf("x64 128 is %x %x", h1, h2)
	}
	if got := murmur32([]byte("hello"), 0); got != 0x248bfa47 {
		t.Errorf("x86 32 is %x", got)
	}
	if got := murmur32([]byte(fox), 0x9747b28c); got != 0x2fa826cd {
		t.Errorf("x86 32 with a seed is %x", got)
	}
}

// murmur128 is MurmurHash3 x64 128, h1 before h2, both little-endian.
func murmur128(b []byte, seed uint32) (sum [16]byte) {
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	h1, h2 := uint64(seed), uint64(seed)
	mix1 := func(k uint64) { h1 ^= bits.RotateLeft64(k*c1, 31) * c2 }
	mix2 := func(k uint64) { h2 ^= bits.RotateLeft64(k*c2, 33) * c1 }
	n := uint64(len(b))
	for ; len(b) >= 16; b = b[16:] {
		mix1(binary.LittleEndian.Uint64(b))
		h1 = (bits.RotateLeft64(h1, 27)+h2)*5 + 0x52dce729
		mix2(binary.LittleEndian.Uint64(b[8:]))
		h2 = (bits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	}
	var tail [16]byte
	copy(tail[:], b)
	mix2(binary.LittleEndian.Uint64(tail[8:]))
	mix1(binary.LittleEndian.Uint64(tail[:]))
	end := func(k uint64) uint64 {
		k = (k ^ k>>33) * 0xff51afd7ed558ccd
		k = (k ^ k>>33) * 0xc4ceb9fe1a85ec53
		return k ^ k>>33
	}
	h1, h2 = h1^n, h2^n
	h1 += h2
	h2 += h1
	h1, h2 = end(h1), end(h2)
	h1 += h2
	h2 += h1
	binary.LittleEndian.PutUint64(sum[:], h1)
	binary.LittleEndian.PutUint64(sum[8:], h2)
	return sum
}

// murmur32 is MurmurHash3 x86 32.
func murmur32(b []byte, seed uint32) uint32 {
	h := seed
	mix := func(k uint32) { h ^= bits.RotateLeft32(k*0xcc9e2d51, 15) * 0x1b873593 }
	n := uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		mix(binary.LittleEndian.Uint32(b))
		h = bits.RotateLeft32(h, 13)*5 + 0xe6546b64
	}
	var tail [4]byte
	copy(tail[:], b)
	mix(binary.LittleEndian.Uint32(tail[:]))
	h ^= n
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}
