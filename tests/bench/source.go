package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/dormousekv/dormouse/kv"
)

// The shape of a model: as many layers as sizes say (16, as Llama 3.2 1B has) with 8 KV heads of 64 dimensions. With 16
// layers, a block of 64 tokens is 2 MiB of f16.
const (
	blockTokens = 64
	width       = 8 * 64 // KV heads x head_dim
)

// descriptor describes that model with a cache of such elements.
func descriptor(layers int, dt kv.DType) kv.Descriptor {
	d := kv.Descriptor{
		Name: "bench", Weights: kv.Hash{1}, Architecture: "bench", Tokenizer: kv.HashOf("bench"), RoPE: kv.RoPE{Type: kv.NoRoPE},
		BlockTokens: blockTokens,
	}
	for layer := range layers {
		for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
			d.Tensors = append(d.Tensors, kv.Tensor{Layer: layer, Role: role, DType: dt, Width: width})
		}
	}
	return d
}

// kvCache is the caller's memory: one stretch for each tensor, as llama.cpp has it. Every page of it was written to.
type kvCache struct {
	tensor  kv.Tensor
	tokens  int
	tensors [][]byte
}

func newKVCache(d kv.Descriptor, tokens int) *kvCache {
	c := &kvCache{tensor: d.Tensors[0], tokens: tokens}
	size := tokens * c.rowBytes()
	mem := make([]byte, size*len(d.Tensors))
	for i := 0; i < len(mem); i += 4096 {
		mem[i] = 0xff
	}
	for i := range d.Tensors {
		c.tensors = append(c.tensors, mem[i*size:(i+1)*size:(i+1)*size])
	}
	return c
}

func (c *kvCache) rowBytes() int { return c.tensor.RowBytes() }

// bytes is the size of all of it.
func (c *kvCache) bytes() int64 { return int64(len(c.tensors)) * int64(len(c.tensors[0])) }

// rows are those of the first tokens.
func (c *kvCache) rows(tokens int) kv.Rows { return c.rowsAt(0, 0, tokens) }

// rowsAt are rows that lie at a token's place in this memory, as those of the positions from first on.
func (c *kvCache) rowsAt(place, first, tokens int) kv.Rows {
	rows := make(kv.Rows, len(c.tensors))
	for i, mem := range c.tensors {
		rows[i] = kv.Packed(first, tokens, mem[place*c.rowBytes():(place+tokens)*c.rowBytes()])
	}
	return rows
}

// poolBytes is the length of the tables that all tensors are cut from. Every tensor begins somewhere else in them, so that
// filling hundreds of MiB costs a copy.
const poolBytes = 1 << 22

// halfPool is f16 of either sign with exponents as random numbers around zero have them, and a large one now and then.
var halfPool = sync.OnceValue(func() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, poolBytes)
	for i := 0; i < len(b); i += 2 {
		exp := uint16(15)
		for exp > 8 && r.Uint32()&1 == 0 {
			exp--
		}
		if r.Uint32()%61 == 0 {
			exp += 3
		}
		binary.LittleEndian.PutUint16(b[i:], uint16(r.Uint32())&0x83ff|exp<<10)
	}
	return b
})

// bytePool is what a runtime's own quantized cache may hold: any bytes.
var bytePool = sync.OnceValue(func() []byte {
	r := rand.New(rand.NewPCG(3, 4))
	b := make([]byte, poolBytes)
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b
})

// fill writes the rows to store into c.
func (c *kvCache) fill() *kvCache {
	pool := halfPool()
	if c.tensor.DType != kv.F16 {
		pool = bytePool()
	}
	for i, mem := range c.tensors {
		for at := copy(mem, pool[2*(i*4093%(poolBytes/4)):]); at < len(mem); {
			at += copy(mem[at:], pool)
		}
	}
	return c
}

// compare returns an error unless c is what was stored: every byte of a runtime's own format, and f16 within what the
// codes of Q8_0 can hold. A group's step is its largest value / 127: a code is half a step off at most, and both the scale
// and the result are rounded to f16.
func (c *kvCache) compare(want *kvCache) error {
	return c.compareWithin(want, func(int) (bytes int, share float32) { return 64, 0.5/127 + 2.0/2048 + 1e-5 })
}

// compareDense is compare for values that are stored as Q4R: of the 8 that are mixed, each can be off by half a step, and a step is
// at most a fifteenth of four times the group's largest value.
func (c *kvCache) compareDense(want *kvCache) error {
	return c.compareWithin(want, func(tensor int) (bytes int, share float32) {
		if tensor%2 == 0 { // keys
			return 64, 0.5/127 + 2.0/2048 + 1e-5
		}
		return 128, 2*4./15 + 0.02
	})
}

// compareWithin compares f16 with the share of its group's largest value that a value of a tensor may be off, and all else bit for bit.
func (c *kvCache) compareWithin(want *kvCache, allowed func(tensor int) (bytes int, share float32)) error {
	return parallel(processors(), len(c.tensors), func(i int) error {
		got, want := c.tensors[i], want.tensors[i]
		if c.tensor.DType != kv.F16 {
			if !bytes.Equal(got, want) {
				return fmt.Errorf("tensor %d: other bytes than were stored", i)
			}
			return nil
		}
		h := halves()
		group, share := allowed(i)
		for at := 0; at < len(want); at += group {
			var largest, off float32
			for k := at; k < at+group; k += 2 {
				x, y := h[binary.LittleEndian.Uint16(want[k:])], h[binary.LittleEndian.Uint16(got[k:])]
				largest = max(largest, x, -x)
				if d := max(x-y, y-x); !(d <= off) { // NaN is far off
					off = d
				}
			}
			if bound := largest * share; !(off <= bound) {
				return fmt.Errorf("tensor %d: a value at byte %d or after is %g off, the bound is %g", i, at, off, bound)
			}
		}
		return nil
	})
}

// halves is the value of each f16.
var halves = sync.OnceValue(func() *[1 << 16]float32 {
	var all [1 << 16]float32
	for i := range all {
		exp, mantissa := i>>10&31, float64(i&1023)
		x := math.Ldexp(mantissa, -24)
		switch exp {
		case 0:
		case 31:
			x = math.NaN()
		default:
			x = math.Ldexp(1024+mantissa, exp-25)
		}
		if i>>15 == 1 {
			x = -x
		}
		all[i] = float32(x)
	}
	return &all
})

// tokens are those of a random prompt; a prompt of another number shares nothing with it.
func tokens(number, n int) []kv.Token {
	r := rand.New(rand.NewPCG(uint64(number), 5))
	all := make([]kv.Token, n)
	for i := range all {
		all[i] = kv.Token(r.Uint32() % 128_000)
	}
	return all
}
