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

// golden pins what hash id 2 means, on every platform and for all time: keys in stores that exist were made with it. A
// change of any of these values needs a new hash id.
var golden = map[string]string{
	"fingerprint, empty": "2aa2d84ac8588634e9c3df3f2aa15779",
	"fingerprint":        "4701c135ad35f1f6a2e2fc867e9e969d",
	"root":               "0a984e8651562a3ef913e9fe25d042d8",
	"root, no adapters":  "f1c71d8a4bd5fc95a1d7e322023f866a",
	"scope alice":        "897c0f70558643d48f6f6e5f6b731752",
	"block 0":            "086eb0e13d08f0e0275a6701d64f63a5",
	"block 1":            "40560a81a26a91a56b239ea1dc1ed5cb",
	"block 2":            "44e3b9ba0c6817343703473beb1518d8",
	"block 3":            "a65a9e482a8edad8a233ce72f5be4292",
	"partial 2 to 30":    "952d17765ed9071a2e05262148a2998b",
	"opening":            "496ec7fd4caa3a048eb75bba0fdb1022",
	"opening, scoped":    "fb78b39ac79995d1763e89269f959dee",
	"token hashes":       "1b1c3de4839a0da8dbb350476d445fcf",
}

func TestGoldenHashes(t *testing.T) {
	if kv.HashID != 2 {
		t.Fatalf("hash id %d: pin its values here, in the place of those of id 2", kv.HashID)
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

// The same values from the description alone.
func TestHashesAsDescribed(t *testing.T) {
	h, p, print := kv.NewHasher(goldenSeed), goldenPrompt(), kv.Fingerprint{9, 8, 7}
	u32 := func(v int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }
	key := func(tag string, parts ...[]byte) kv.Key {
		sum := sha256.Sum256(slices.Concat(goldenSeed[:], []byte(tag), slices.Concat(parts...)))
		return kv.Key(sum[:16])
	}
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
	root := key("R", print[:], goldenAdapter[0].Hash[:], scale(0), goldenAdapter[1].Hash[:], scale(1))
	if h.Root(print, nil) != key("R", print[:]) {
		t.Error("the root without adapters is not what is described")
	}
	scope := key("S", []byte("alice"))
	block0 := key("B", root[:], toks(0, 16), span(10, 0, p.Spans[0]))
	block1 := key("B", block0[:], toks(16, 24), span(0, 6, p.Spans[0]))
	entered := key("E", block1[:], scope[:])
	block2 := key("B", entered[:], toks(24, 40))
	block3 := key("B", block2[:], toks(40, 50), span(5, 0, p.Spans[1]))

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
	if want := key("O", root[:], shared[:], hashes); c.Opening() != want {
		t.Errorf("opening %s, described is %s", c.Opening(), want)
	}
}

// The reference is MurmurHash3: the values are those of its author's program (SMHasher) for these inputs.
func TestReferenceMurmur(t *testing.T) {
	const fox = "The quick brown fox jumps over the lazy dog"
	if got := murmur32([]byte("hello"), 0); got != 0x248bfa47 {
		t.Errorf("x86 32 is %x", got)
	}
	if got := murmur32([]byte(fox), 0x9747b28c); got != 0x2fa826cd {
		t.Errorf("x86 32 with a seed is %x", got)
	}
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
