package damage

import (
	"encoding/binary"
	"math"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// The truth: a row is a function of its tensor and of everything that it is conditioned on up to its position, so a row of
// any other prefix is a wrong one.

// kind is a model and how its rows are stored.
type kind struct {
	d   kv.Descriptor
	put db.PutOptions
}

const blockTokens = 16

// kinds are the models: between them every rule of coverage, codec and compression.
func kinds() map[string]kind {
	attention := func(layer, group int, dtype kv.DType, width int) []kv.Tensor {
		return []kv.Tensor{
			{Layer: layer, Role: kv.RoleK, DType: dtype, Width: width, Group: group},
			{Layer: layer, Role: kv.RoleV, DType: dtype, Width: width, Group: group},
		}
	}
	all := kv.Group{Kind: kv.All}
	out := map[string]kind{
		"int8": {kv.Descriptor{Tensors: attention(0, 0, kv.F16, 32)}, db.PutOptions{Codec: quant.Q8_0}},
		"huff": {kv.Descriptor{Tensors: attention(0, 0, kv.F16, 32)}, db.PutOptions{Codec: quant.Q8_0, Compression: quant.Huff0}},
		"zstd": {kv.Descriptor{Tensors: attention(0, 0, kv.BF16, 32)}, db.PutOptions{Codec: quant.Raw, Compression: quant.Zstd}},
		"window": {
			kv.Descriptor{
				Groups:  []kv.Group{all, {Kind: kv.Window, Window: 24}},
				Tensors: append(attention(0, 0, kv.F32, 16), attention(1, 1, kv.F16, 32)...),
			},
			db.PutOptions{Codec: quant.ByteSplit},
		},
		"s2": {
			kv.Descriptor{
				Groups: []kv.Group{all, {Kind: kv.StateAt}},
				Tensors: append(attention(0, 0, kv.F16, 32),
					kv.Tensor{Layer: 1, Role: kv.RoleState, DType: kv.F32, Width: 24, Group: 1}),
			},
			db.PutOptions{Codec: quant.Raw, Compression: quant.S2},
		},
		"opaque": {
			kv.Descriptor{
				StateFormat: "1",
				Groups:      []kv.Group{all, {Kind: kv.StateAt}},
				Tensors:     []kv.Tensor{{Role: kv.RoleState, DType: kv.Bytes, Group: 1}},
			},
			db.PutOptions{},
		},
		"retired": {kv.Descriptor{Tensors: attention(0, 0, kv.F16, 32)}, db.PutOptions{Codec: quant.Raw}},
	}
	for name, k := range out {
		k.d.Name, k.d.Architecture, k.d.BlockTokens, k.d.Weights = name, "test", blockTokens, kv.Hash{byte(len(name)), name[0]}
		k.d.Tokenizer, k.d.RoPE.Type = kv.HashOf("test"), kv.NoRoPE
		d, err := k.d.Normal()
		if err != nil {
			panic(err)
		}
		out[name] = kind{d, k.put}
	}
	return out
}

// chat is one prompt and its right rows.
type chat struct {
	name string
	kind
	p     kv.Prompt
	rows  kv.Rows       // as the runtime computed them
	exact [][]byte      // by tensor: as an undamaged store gives them back
	want  int           // tokens that an undamaged store gives back
	lost  bool          // what is beyond want was deleted
	rests map[int][]use // by number of tokens: the blocks that this much of it rests on; for want, and for what is left without some
	memo  kv.Rows       // memory to restore into, of exact's shape

	hashed []uint64 // see hashes
}

// use is a block of a prompt, and what is left of the prompt without it.
type use struct {
	block kv.Key
	least int
}

// lookUp notes what the first n tokens rest on, and what each of the shorter prefixes does that are left without a block. These
// may end in tails of other prompts.
func (c *chat) lookUp(m *db.Model, n int) error {
	if n == 0 || c.rests[n] != nil {
		return nil
	}
	e, err := m.Explain(ctx, c.p.Prefix(n), db.MatchOptions{})
	if err != nil {
		return err
	}
	c.rests[n] = []use{}
	for _, block := range e.Blocks {
		u := use{block: block.Key}
		if block.Start > 0 {
			if u.least, _, err = m.Probe(ctx, c.p, db.MatchOptions{Limit: block.Start}); err != nil {
				return err
			}
		}
		c.rests[n] = append(c.rests[n], u)
		if err := c.lookUp(m, u.least); err != nil {
			return err
		}
	}
	return nil
}

func mix(h, x uint64) uint64 {
	h = (h ^ x) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

// hashes says, by position, what the row there is conditioned on.
func hashes(p *kv.Prompt) []uint64 {
	h := uint64(len(p.Adapters) + 1)
	var out []uint64
	for pos, tok := range p.Tokens {
		h = mix(h, uint64(tok)+1)
		for _, s := range p.Spans {
			if s.Start <= pos && pos < s.End() {
				h = mix(h, uint64(s.Hash[0])<<8|uint64(pos-s.Start))
			}
		}
		out = append(out, h)
	}
	return out
}

// appendRow appends a row: values of few kinds, so that it can be compressed, and here and there one that int8 cannot hold.
func appendRow(b []byte, t kv.Tensor, h uint64) []byte {
	h = mix(h, uint64(t.Layer)<<8|uint64(t.Role))
	odd := h%11 == 0
	for i := range t.Width {
		h = mix(h, 7)
		v := float32(int(h>>40)%8-3) / 4
		if odd && i == 5 {
			v = float32(math.Inf(1))
		}
		switch bits := math.Float32bits(v); t.DType {
		case kv.F32:
			b = binary.LittleEndian.AppendUint32(b, bits)
		case kv.BF16:
			b = binary.LittleEndian.AppendUint16(b, uint16(bits>>16))
		case kv.F16:
			b = binary.LittleEndian.AppendUint16(b, half(bits))
		}
	}
	return b
}

// half converts f32 bits of a number that f16 has.
func half(bits uint32) uint16 {
	sign, exp, frac := uint16(bits>>16)&0x8000, int(bits>>23)&0xff, uint16(bits>>13)&0x3ff
	switch exp {
	case 0:
		return sign
	case 0xff:
		return sign | 0x7c00 | frac
	}
	return sign | uint16(exp-127+15)<<10 | frac
}

// state is a runtime's own state after n tokens; its length varies.
func state(h uint64, n int) []byte {
	var b []byte
	for len(b) < 300+n%70 {
		h = mix(h, 3)
		b = binary.LittleEndian.AppendUint64(b, h)
	}
	return b[:300+n%70]
}

// maxState is room for any state.
const maxState = 512

// compute fills in the rows of all positions, and the states after n tokens.
func (c *chat) compute(n int) kv.Rows {
	h := hashes(&c.p)
	rows := make(kv.Rows, len(c.d.Tensors))
	for i, t := range c.d.Tensors {
		switch {
		case c.d.Groups[t.Group].Kind != kv.StateAt:
			var mem []byte
			for pos := range n {
				mem = appendRow(mem, t, h[pos])
			}
			rows[i] = kv.Packed(0, n, mem)
		case t.Width == 0:
			rows[i] = kv.Packed(n, 1, state(h[n-1], n))
		default:
			rows[i] = kv.Packed(n, 1, appendRow(nil, t, h[n-1]))
		}
	}
	return rows
}

// memory is what a restore of the chat writes into, full of rubbish.
func (c *chat) memory() kv.Rows {
	n := len(c.p.Tokens)
	rows := make(kv.Rows, len(c.d.Tensors))
	for i, t := range c.d.Tensors {
		size := n * t.RowBytes()
		if c.d.Groups[t.Group].Kind == kv.StateAt {
			if size = t.RowBytes(); t.Width == 0 {
				size = maxState
			}
			rows[i] = kv.Packed(0, 1, make([]byte, size))
			continue
		}
		rows[i] = kv.Packed(0, n, make([]byte, size))
	}
	return rows
}

// tokens returns n ids that depend on seed alone.
func tokens(seed, n int) []kv.Token {
	out := make([]kv.Token, n)
	h := uint64(seed)
	for i := range out {
		h = mix(h, uint64(i)+1)
		out[i] = kv.Token(h % 30000)
	}
	return out
}

func concat(parts ...[]kv.Token) (out []kv.Token) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}
