package kv

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
)

// HashID names the hash that keys are made with; FORMAT records it.
const HashID = 2 // SHA-256 cut to 128 bits, as laid out in this file and in fingerprint.go; 1 was murmur3

// Every key is the first half of the SHA-256 of the store's seed, a tag that keeps the inputs of the different hashes apart, and
// what the key names. So nobody can make two prompts with one key.
const (
	tagRoot    = 'R'
	tagBlock   = 'B'
	tagScope   = 'S'
	tagEnter   = 'E'
	tagOpening = 'O'
	tagMark    = 'M'
)

// OpeningTokens is how many leading tokens the opening key covers: prompts that share fewer are not worth a restore,
// and a match never reports them.
const OpeningTokens = 16

// Hasher makes a store's keys from its seed. It is a value, safe for concurrent use.
type Hasher struct {
	seed Seed
}

// NewHasher returns the hasher of a store with that seed.
func NewHasher(seed Seed) Hasher { return Hasher{seed} }

// begin is what the input of a hash begins with, in the memory of buf.
func (h Hasher) begin(buf []byte, tag byte) []byte { return append(append(buf[:0], h.seed[:]...), tag) }

func sum(b []byte) [16]byte {
	s := sha256.Sum256(b)
	return [16]byte(s[:16])
}

// Root is the key before the first block: it stands for the seed, the model and the adapters.
func (h Hasher) Root(fp Fingerprint, adapters []Adapter) Key {
	k, _ := h.root(nil, fp, adapters)
	return k
}

// The hashes take a buffer and return it, so that a chain allocates one.

func (h Hasher) root(buf []byte, fp Fingerprint, adapters []Adapter) (Key, []byte) {
	b := append(h.begin(buf, tagRoot), fp[:]...)
	for _, a := range adapters {
		b = append(b, a.Hash[:]...)
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(a.Scale))
	}
	return sum(b), b
}

// Scope returns the id of a named scope; the empty name is the shared scope.
func (h Hasher) Scope(name string) ScopeID {
	id, _ := h.scope(nil, name)
	return id
}

func (h Hasher) scope(buf []byte, name string) (ScopeID, []byte) {
	if name == "" {
		return ScopeID{}, buf
	}
	b := append(h.begin(buf, tagScope), name...)
	return sum(b), b
}

// enter returns the key that stands for parent at the point where scope begins.
func (h Hasher) enter(buf []byte, parent Key, scope ScopeID) (Key, []byte) {
	b := append(h.begin(buf, tagEnter), parent[:]...)
	b = append(b, scope[:]...)
	return sum(b), b
}

// block is the key of the tokens [start, end) of p below parent.
func (h Hasher) block(buf []byte, parent Key, p *Prompt, start, end int) (Key, []byte) {
	b := append(h.begin(buf, tagBlock), parent[:]...)
	b = appendTokens(b, p, start, end)
	return sum(b), b
}

// Opening is the Bloom filter's key of a prompt's first [OpeningTokens] tokens: hashes are theirs, as
// [Hasher.AppendTokenHashes] makes them, below the root parent in scope. It can be made anew from an index alone.
func (h Hasher) Opening(parent Key, scope ScopeID, hashes []byte) Key {
	b := h.openingHead(make([]byte, 0, 49+OpeningTokens*TokenHashBytes), parent, scope)
	return sum(append(b, hashes[:min(len(hashes), OpeningTokens*TokenHashBytes)]...))
}

func (h Hasher) openingHead(buf []byte, parent Key, scope ScopeID) []byte {
	b := append(h.begin(buf, tagOpening), parent[:]...)
	return append(b, scope[:]...)
}

// appendTokens writes the tokens [start, end) and, of each span that touches them, its content and the offset in it
// of its first token in the range. Nothing that lies beyond end shows.
func appendTokens(b []byte, p *Prompt, start, end int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(end-start))
	for _, t := range p.Tokens[start:end] {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	for _, s := range p.Spans {
		if s.End() <= start {
			continue
		}
		if s.Start >= end {
			break
		}
		at := max(s.Start, start)
		b = binary.LittleEndian.AppendUint32(b, uint32(at-start))
		b = binary.LittleEndian.AppendUint32(b, uint32(at-s.Start))
		b = binary.LittleEndian.AppendUint32(b, uint32(s.Len))
		b = append(b, s.Hash[:]...)
	}
	return b
}

// TokenHashBytes is the width of one token in the order that [Hasher.AppendTokenHashes] defines.
const TokenHashBytes = 2

// AppendTokenHashes appends two seeded-hash bytes for each token of p in [start, end), never both zero: the index keeps
// its zeros for the end of a row, and what it gives back must be what the opening key was made of. Children of one parent are ordered
// by these bytes, so the child that shares the longest common prefix is a neighbour of a seek. Tokens in a span hash
// the span's content too. Two bytes are a hint: whoever uses them compares tokens afterwards.
func (h Hasher) AppendTokenHashes(dst []byte, p *Prompt, start, end int) []byte {
	var b [28]byte
	span := 0
	for pos := start; pos < end; pos++ {
		for span < len(p.Spans) && p.Spans[span].End() <= pos {
			span++
		}
		n := 4
		binary.LittleEndian.PutUint32(b[0:], uint32(p.Tokens[pos]))
		if span < len(p.Spans) && p.Spans[span].Start <= pos {
			s := p.Spans[span]
			binary.LittleEndian.PutUint32(b[4:], uint32(pos-s.Start))
			binary.LittleEndian.PutUint32(b[8:], uint32(s.Len))
			copy(b[12:], s.Hash[:])
			n = len(b)
		}
		x := uint16(sum32(b[:n], binary.LittleEndian.Uint32(h.seed[4:])))
		x = max(x, 1)
		dst = append(dst, byte(x>>8), byte(x))
	}
	return dst
}

// sum32 is MurmurHash3 x86 32 of whole words. That of the murmur3 package walks its input by uintptr, which the pointer
// checks of the race detector end the process for.
func sum32(words []byte, seed uint32) uint32 {
	sum := seed
	for i := 0; i < len(words); i += 4 {
		k := binary.LittleEndian.Uint32(words[i:]) * 0xcc9e2d51
		sum ^= bits.RotateLeft32(k, 15) * 0x1b873593
		sum = bits.RotateLeft32(sum, 13)*5 + 0xe6546b64
	}
	sum ^= uint32(len(words))
	sum = (sum ^ sum>>16) * 0x85ebca6b
	sum = (sum ^ sum>>13) * 0xc2b2ae35
	return sum ^ sum>>16
}

// Chain is the chain of keys of one prompt, hashed lazily: an 8,192-token prompt has 128 blocks, and a prompt that shares
// nothing never hashes more than the first. Not safe for concurrent use.
type Chain struct {
	h           Hasher
	p           *Prompt
	blockTokens int
	blocks      int
	root        Key
	scope       ScopeID
	keys        []Key
	buf         []byte
}

// Chain starts hashing p for the model with that fingerprint and block size. p must be valid and stay as it is.
func (h Hasher) Chain(fp Fingerprint, blockTokens int, p *Prompt) *Chain {
	c := new(Chain)
	c.Reset(h, fp, blockTokens, p)
	return c
}

// Reset makes c what [Hasher.Chain] returns, in the memory that it has.
func (c *Chain) Reset(h Hasher, fp Fingerprint, blockTokens int, p *Prompt) {
	*c = Chain{h: h, p: p, blockTokens: blockTokens, blocks: p.Blocks(blockTokens), keys: c.keys[:0], buf: c.buf}
	c.root, c.buf = h.root(c.buf, fp, p.Adapters)
	c.scope, c.buf = h.scope(c.buf, p.Scope)
}

// Len is the number of blocks, a partial one at the end included.
func (c *Chain) Len() int { return c.blocks }

// Block returns the positions [start, end) of block i.
func (c *Chain) Block(i int) (start, end int) { return c.p.Block(i, c.blockTokens) }

// Scope returns the scope that block i belongs to.
func (c *Chain) Scope(i int) ScopeID {
	if start, _ := c.Block(i); c.p.scoped(start) {
		return c.scope
	}
	return ScopeID{}
}

// Root is the key before the first block.
func (c *Chain) Root() Key { return c.root }

// Parent is the key of the block before i: the root for the first.
func (c *Chain) Parent(i int) Key {
	if i == 0 {
		return c.root
	}
	return c.Key(i - 1)
}

// Key is the key of block i.
func (c *Chain) Key(i int) Key {
	for j := len(c.keys); j <= i; j++ {
		start, end := c.Block(j)
		var k Key
		k, c.buf = c.h.block(c.buf, c.link(j), c.p, start, end)
		c.keys = append(c.keys, k)
	}
	return c.keys[i]
}

// Partial is the key that block i would have if the prompt ended at end.
func (c *Chain) Partial(i, end int) Key {
	link := c.link(i)
	start, _ := c.Block(i)
	var k Key
	k, c.buf = c.h.block(c.buf, link, c.p, start, end)
	return k
}

// link is what block i is chained to: its parent, with the scope mixed in where that begins.
func (c *Chain) link(i int) Key {
	parent := c.Parent(i)
	if start, _ := c.Block(i); c.p.scoped(start) && (i == 0 || !c.p.scoped(c.blockStart(i-1))) {
		parent, c.buf = c.h.enter(c.buf, parent, c.scope)
	}
	return parent
}

func (c *Chain) blockStart(i int) int {
	start, _ := c.Block(i)
	return start
}

// Opening is the key of the first block's first [OpeningTokens] tokens, which the Bloom filter also holds for every first
// block: a prompt that shares nothing costs one probe. It never covers more than the first block, which may end early, at
// ScopeStart: what the index knows of that block must be enough to make the key anew.
func (c *Chain) Opening() Key {
	_, end := c.Block(0)
	c.buf = c.h.openingHead(c.buf, c.root, c.Scope(0))
	c.buf = c.h.AppendTokenHashes(c.buf, c.p, 0, min(OpeningTokens, end))
	return sum(c.buf)
}
