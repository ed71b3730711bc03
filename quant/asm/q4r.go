package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	turnedValues = 64 // of a group of Q4R
	turnedBytes  = 36 // of its block

	// One turn of a checksumming loop takes 6 groups in three streams of 2: 72 bytes are 9 words of 8.
	turnedStreamGroups = 2
	turnedStreamBytes  = turnedStreamGroups * turnedBytes
	turnedStreamWords  = turnedStreamBytes / 8
	turnedTurnGroups   = streams * turnedStreamGroups
)

// turnedDecoder is one function that decodes Q4R.
type turnedDecoder struct {
	*x86
	turnedConstants
	dt       dtype
	stream   bool
	outBytes int // of a group
	dst, src reg.GPVirtual

	sums mergeFactors
}

func (c *x86) dequantizeTurned(dt dtype, data turnedConstants, crc, stream bool) {
	name, signature, doc := "dequantizeQ4R"+dt.name, "func(dst, src *byte, groups int)", "writes the values of groups Q4R blocks"
	if crc {
		name, signature = name+"CRC", "func(dst, src *byte, groups int, crc uint32) uint32"
		doc += " and goes on with the CRC32C (inverted) of their bytes"
	}
	if stream {
		name += "Stream"
		doc += ". Stores bypass the caches; dst is aligned to " + map[string]string{"F16": "16", "BF16": "32", "F32": "32"}[dt.name] + " bytes"
	}
	name += c.isa
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr(signature)
	c.Doc(name + " " + doc + ".")
	c.Pragma("noescape")

	d := &turnedDecoder{x86: c, turnedConstants: data, dt: dt, stream: stream, outBytes: turnedValues * dt.bytes}
	d.dst, d.src = c.Load(c.Param("dst"), c.GP64()).(reg.GPVirtual), c.Load(c.Param("src"), c.GP64()).(reg.GPVirtual)
	groups := c.Load(c.Param("groups"), c.GP64()).(reg.GPVirtual)
	turn := turnedStreamGroups
	var sum reg.GPVirtual
	if crc {
		turn = turnedTurnGroups
		sum = c.GP64()
		c.Load(c.Param("crc"), sum.As32())
		d.sums = c.mergeFactors(turnedStreamBytes)
	}

	c.Label("turn")
	c.SUBQ(U32(turn), groups)
	c.JLT(LabelRef("rest"))
	if crc {
		d.checksummedTurn(sum)
	} else {
		for g := range turn {
			d.group(g)
			d.prefetch(g, turn)
		}
	}
	c.ADDQ(U32(turn*turnedBytes), d.src)
	c.ADDQ(U32(turn*d.outBytes), d.dst)
	c.JMP(LabelRef("turn"))

	c.Label("rest")
	c.ADDQ(U32(turn), groups)
	c.JZ(LabelRef("done"))
	c.Label("one")
	d.group(0)
	if crc {
		for i := range 4 {
			c.CRC32Q(Mem{Base: d.src, Disp: 8 * i}, sum)
		}
		c.CRC32L(Mem{Base: d.src, Disp: 32}, sum.As32())
	}
	c.ADDQ(U32(turnedBytes), d.src)
	c.ADDQ(U32(d.outBytes), d.dst)
	c.DECQ(groups)
	c.JNZ(LabelRef("one"))

	c.Label("done")
	c.VZEROUPPER()
	if crc {
		c.Store(sum.As32(), c.ReturnIndex(0))
	}
	c.RET()
}

// What is in memory, for want of registers.
type turnedConstants struct {
	nibbles        Mem // 0x0f in each byte
	sum8, apart8   Mem // bytes 1, 1 and 1, -1
	sum16, apart16 Mem // words
	factors        Mem // 1/2 for the scale, 4 for the minimum
	round, one     Mem // bf16

	abs, quarter, half, fifteen, unit, four, keep Mem // of the encoder
}

func (c *x86) turnedConstants() (t turnedConstants) {
	data := func(name string, words ...uint64) Mem {
		m := c.StaticGlobal("turned" + name)
		c.DataAttributes(attr.RODATA | attr.NOPTR)
		for _, w := range words {
			c.AppendDatum(U64(w))
		}
		return m
	}
	same := func(w uint64) []uint64 { return []uint64{w, w, w, w} }
	t.nibbles = data("Nibbles", same(0x0f0f0f0f0f0f0f0f)...)
	t.round, t.one = data("Round", same(0x00007fff00007fff)...), data("One", same(0x0000000100000001)...)
	word := func(w uint64) []uint64 { return same(w<<32 | w) }
	t.abs, t.keep = data("Abs", word(0x7fffffff)...), data("Keep", word(0xffff0000)...)
	t.quarter, t.half, t.unit = data("Quarter", word(0x3e800000)...), data("Half", word(0x3f000000)...), data("Unit", word(0x3f800000)...)
	t.four, t.fifteen = data("Four", word(0x40800000)...), data("Fifteen", word(0x41700000)...)
	t.sum8 = data("Sum8", same(0x0101010101010101)...)
	t.apart8 = data("Apart8", same(0xff01ff01ff01ff01)...)
	t.sum16 = data("Sum16", same(0x0001000100010001)...)
	t.apart16 = data("Apart16", same(0xffff0001ffff0001)...)
	t.factors = data("Factors", 0x408000003f000000, 0)
	return t
}

func (d *turnedDecoder) prefetch(i, n int) {
	total := (n*turnedBytes + 63) / 64
	for l := total * i / n; l < total*(i+1)/n; l++ {
		d.PREFETCHT0(Mem{Base: d.src, Disp: prefetchBytes + 64*l})
	}
}

// checksummedTurn is that of the Q8_0 decoder.
func (d *turnedDecoder) checksummedTurn(sum reg.GPVirtual) {
	sums := [streams]reg.GPVirtual{sum, d.GP64(), d.GP64()}
	d.XORL(sums[1].As32(), sums[1].As32())
	d.XORL(sums[2].As32(), sums[2].As32())
	for g := range turnedTurnGroups {
		d.group(g)
		d.prefetch(g, turnedTurnGroups)
		for w := turnedStreamWords * g / turnedTurnGroups; w < turnedStreamWords*(g+1)/turnedTurnGroups; w++ {
			for s, sum := range sums {
				if s < streams-1 || w < turnedStreamWords-1 {
					d.CRC32Q(Mem{Base: d.src, Disp: s*turnedStreamBytes + 8*w}, sum)
				}
			}
		}
	}
	d.merge(d.sums, sums, Mem{Base: d.src, Disp: streams*turnedStreamBytes - 8})
}

// group decodes the block i groups behind src. A code's place has 6 bits: bit 5 is the half of its byte, the bits 4 and 3 are
// the lowest of the byte's number. Those two are mixed by the instructions that widen, which add pairs. So places that
// follow one another stay in one register from beginning to end.
func (d *turnedDecoder) group(i int) {
	in, out := i*turnedBytes, i*d.outBytes
	scales, least := d.scales(in)
	low, high := d.YMM(), d.YMM()
	d.VMOVDQU(Mem{Base: d.src, Disp: in + 4}, low)
	d.VPSRLW(Imm(4), low, high)
	d.VPAND(d.nibbles, low, low)
	d.VPAND(d.nibbles, high, high)
	var v [2][2]reg.VecVirtual // by bits 5 and 3
	for half, codes := range []reg.VecVirtual{low, high} {
		v[half] = [2]reg.VecVirtual{d.YMM(), d.YMM()}
		d.VPMADDUBSW(d.sum8, codes, v[half][0])
		d.VPMADDUBSW(d.apart8, codes, v[half][1])
	}
	for b3 := range 2 {
		sum, apart := d.YMM(), d.YMM()
		d.VPADDW(v[1][b3], v[0][b3], sum)
		d.VPSUBW(v[1][b3], v[0][b3], apart)
		v[0][b3], v[1][b3] = sum, apart
	}
	for b5 := range 2 {
		for b4, factors := range []Mem{d.sum16, d.apart16} {
			var x [2]reg.VecVirtual // 16 places
			for b3 := range 2 {
				x[b3] = d.YMM()
				d.VPMADDWD(factors, v[b5][b3], x[b3])
				d.VCVTDQ2PS(x[b3], x[b3])
				d.VMULPS(scales, x[b3], x[b3])
			}
			if b5+b4 == 0 {
				d.VADDPS(least, x[0], x[0])
			}
			d.store(x, out+(32*b5+16*b4)*d.dt.bytes)
		}
	}
}

// scales are half the scale and 4 times the minimum, in all lanes; 0 for what is not finite.
func (d *turnedDecoder) scales(in int) (scales, least reg.VecVirtual) {
	x, finite := d.XMM(), d.XMM()
	scales, least = d.YMM(), d.YMM()
	d.VMOVD(Mem{Base: d.src, Disp: in}, x)
	d.VCVTPH2PS(x, x)
	d.VSUBPS(x, x, finite)                   // 0, or NaN
	d.VCMPPS(Imm(7), finite, finite, finite) // ordered
	d.VANDPS(finite, x, x)
	d.VMULPS(d.factors, x, x)
	d.VBROADCASTSS(x, scales)
	d.VPSHUFD(Imm(1), x, x)
	d.VBROADCASTSS(x, least)
	return scales, least
}

// store writes 16 values.
func (d *turnedDecoder) store(x [2]reg.VecVirtual, at int) {
	put := func(v reg.VecVirtual, at int) {
		m := Mem{Base: d.dst, Disp: at}
		if d.stream {
			d.VMOVNTDQ(v, m)
		} else {
			d.VMOVDQU(v, m)
		}
	}
	switch d.dt.name {
	case "F16":
		for i, v := range x {
			h := d.XMM()
			d.VCVTPS2PH(Imm(0), v, h)
			put(h, at+16*i)
		}
	case "BF16":
		for _, v := range x {
			last := d.YMM()
			d.VPSRLD(Imm(16), v, last)
			d.VPAND(d.one, last, last)
			d.VPADDD(d.round, v, v)
			d.VPADDD(last, v, v)
			d.VPSRLD(Imm(16), v, v)
		}
		d.VPACKUSDW(x[1], x[0], x[0])
		d.VPERMQ(Imm(0xd8), x[0], x[0])
		put(x[0], at)
	case "F32":
		put(x[0], at)
		put(x[1], at+32)
	}
}
