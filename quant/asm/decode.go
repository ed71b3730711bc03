package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	groupValues = 32
	blockBytes  = 34

	// One turn of a checksumming loop takes 12 groups in three streams of 4: 136 bytes are 17 words of 8.
	streams      = 3
	streamGroups = 4
	streamBytes  = streamGroups * blockBytes
	streamWords  = streamBytes / 8
	turnGroups   = streams * streamGroups

	plainTurnGroups = 4 // of a loop without checksum

	prefetchBytes = 2 << 10 // how far ahead of the stored bytes
)

type dtype struct {
	name  string
	bytes int // of an element
}

// drop is how many of an f32's lowest bits the type does not keep.
func (dt dtype) drop() int {
	switch dt.name {
	case "F16":
		return 13
	case "BF16":
		return 16
	}
	return 0
}

var types = []dtype{{"F16", 2}, {"BF16", 2}, {"F32", 4}}

// dequantize has one loop that takes turns of several groups, and one for the groups that are left.
func (c *x86) dequantize(dt dtype, crc, stream bool) {
	name := "dequantize" + dt.name
	signature := "func(dst, src *byte, groups int)"
	doc := fmt.Sprintf("writes the values of groups blocks")
	if crc {
		name, signature = name+"CRC", "func(dst, src *byte, groups int, crc uint32) uint32"
		doc += " and goes on with the CRC32C (inverted) of their bytes"
	}
	if stream {
		name += "Stream"
		doc += fmt.Sprintf(". Stores bypass the caches; dst is aligned to %d bytes", c.streamAlignment(dt))
	}
	name += c.isa
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr(signature)
	c.Doc(name + " " + doc + ".")
	c.Pragma("noescape")

	d := &decoder{x86: c, dt: dt, stream: stream, outBytes: groupValues * dt.bytes}
	d.dst, d.src = c.Load(c.Param("dst"), c.GP64()).(reg.GPVirtual), c.Load(c.Param("src"), c.GP64()).(reg.GPVirtual)
	groups := c.Load(c.Param("groups"), c.GP64()).(reg.GPVirtual)
	d.zero = c.GP32()
	c.XORL(d.zero, d.zero)
	d.constants()
	turn := plainTurnGroups
	var sum reg.GPVirtual
	if crc {
		turn = turnGroups
		sum = c.GP64()
		c.Load(c.Param("crc"), sum.As32())
		d.factors = c.mergeFactors(streamBytes)
	}

	single := groups // to take one by one
	if d.fused() {
		single = c.GP64()
	}
	c.Label("turn")
	c.SUBQ(U32(turn), groups)
	c.JLT(LabelRef("rest"))
	if d.fused() {
		c.MOVL(U32(turn), single.As32())
		d.ordinaryScales(turn, LabelRef("one"))
		d.quick = true
	}
	if crc {
		d.checksummedTurn(sum)
	} else {
		for g := range turn {
			d.group(g)
			d.prefetch(g, turn)
		}
	}
	d.quick = false
	c.ADDQ(U32(turn*blockBytes), d.src)
	c.ADDQ(U32(turn*d.outBytes), d.dst)
	c.JMP(LabelRef("turn"))

	c.Label("rest")
	c.ADDQ(U32(turn), groups)
	c.JZ(LabelRef("done"))
	if d.fused() {
		c.MOVQ(groups, single)
		c.XORL(groups.As32(), groups.As32())
	}
	c.Label("one")
	d.group(0)
	if crc {
		for i := range 4 {
			c.CRC32Q(Mem{Base: d.src, Disp: 8 * i}, sum)
		}
		c.CRC32W(Mem{Base: d.src, Disp: 32}, sum.As32())
	}
	c.ADDQ(U32(blockBytes), d.src)
	c.ADDQ(U32(d.outBytes), d.dst)
	c.DECQ(single)
	c.JNZ(LabelRef("one"))
	if d.fused() {
		c.TESTQ(groups, groups)
		c.JNZ(LabelRef("turn"))
	}

	c.Label("done")
	c.VZEROUPPER()
	if crc {
		c.Store(sum.As32(), c.ReturnIndex(0))
	}
	c.RET()
}

// streamAlignment is the width of stores around the caches, which are the better the wider they are. F16 comes in 16 bytes,
// and to join two of them gains nothing.
func (c *x86) streamAlignment(dt dtype) int {
	switch {
	case c.isa == "AVX512":
		return 64
	case dt.name == "F16":
		return 16
	}
	return 32
}

// decoder is one dequantizing function.
type decoder struct {
	*x86
	dt       dtype
	stream   bool
	outBytes int // of a group
	dst, src reg.GPVirtual
	zero     reg.GPVirtual

	round, one, even, odd, shift, clear reg.VecVirtual // bf16
	split                               splitter
	quick                               bool // all scales of this turn are ordinary

	factors mergeFactors
}

func (d *decoder) constants() {
	switch {
	case d.dt.name != "BF16":
		return
	case d.isa == "AVX512":
		d.round, d.one = d.broadcast512(0x7fff), d.broadcast512(1)
		return
	}
	d.constantsBF16()
}

// broadcast is a vector of 32-bit numbers.
func (c *x86) broadcast(v uint32) reg.VecVirtual {
	gp, x, y := c.GP32(), c.XMM(), c.YMM()
	c.MOVL(U32(v), gp)
	c.VMOVD(gp, x)
	c.VPBROADCASTD(x, y)
	return y
}

// prefetch touches the lines that step i of n brings near.
func (d *decoder) prefetch(i, n int) {
	total := (n*blockBytes + 63) / 64
	for l := total * i / n; l < total*(i+1)/n; l++ {
		d.PREFETCHT0(Mem{Base: d.src, Disp: prefetchBytes + 64*l})
	}
}

// checksummedTurn dequantizes 12 groups and runs three checksums beside it, of 4 groups each: one alone would wait for
// the latency of CRC32Q. sum goes on in the first; the factors carry the first two to where the third ends.
func (d *decoder) checksummedTurn(sum reg.GPVirtual) {
	sums := [streams]reg.GPVirtual{sum, d.GP64(), d.GP64()}
	d.XORL(sums[1].As32(), sums[1].As32())
	d.XORL(sums[2].As32(), sums[2].As32())
	for g := range turnGroups {
		d.group(g)
		d.prefetch(g, turnGroups)
		for w := streamWords * g / turnGroups; w < streamWords*(g+1)/turnGroups; w++ {
			for s, sum := range sums {
				if s < streams-1 || w < streamWords-1 {
					d.CRC32Q(Mem{Base: d.src, Disp: s*streamBytes + 8*w}, sum)
				}
			}
		}
	}
	d.merge(d.factors, sums, Mem{Base: d.src, Disp: streams*streamBytes - 8})
}

// group dequantizes the block i groups behind src.
func (d *decoder) group(i int) {
	in, out := i*blockBytes, i*d.outBytes
	if d.isa == "AVX512" {
		d.group512(in, out)
		return
	}
	scale := d.scale(in)
	store := func(v reg.VecVirtual, at int) {
		m := Mem{Base: d.dst, Disp: out + at}
		if d.stream {
			d.VMOVNTDQ(v, m)
		} else {
			d.VMOVDQU(v, m)
		}
	}
	if d.dt.name == "BF16" {
		d.bf16(in+2, scale, store)
		return
	}
	for k := range 4 {
		v := d.YMM()
		d.VPMOVSXBD(Mem{Base: d.src, Disp: in + 2 + 8*k}, v)
		d.VCVTDQ2PS(v, v)
		d.VMULPS(scale, v, v)
		if d.dt.name == "F32" {
			store(v, 32*k)
			continue
		}
		h := d.XMM()
		d.VCVTPS2PH(Imm(0), v, h)
		store(h, 16*k)
	}
}

// scale is the scale of the block at offset in of src in all lanes of 256 bits.
func (d *decoder) scale(in int) reg.VecVirtual {
	if d.quick {
		return d.ordinaryScale(in)
	}
	x, y := d.scaleLane(in), d.YMM()
	if d.dt.name == "BF16" {
		d.VMULSS(d.shift.AsX(), x, x)
	}
	d.VBROADCASTSS(x, y)
	return y
}

// scaleLane is the scale in the lowest lane, or 0 if it is not finite.
func (d *decoder) scaleLane(in int) reg.VecVirtual {
	s, exp, x := d.GP32(), d.GP32(), d.XMM()
	d.MOVWLZX(Mem{Base: d.src, Disp: in}, s)
	d.MOVL(s, exp)
	d.ANDL(U32(0x7c00), exp)
	d.CMPL(exp, U32(0x7c00))
	d.CMOVLEQ(d.zero, s)
	d.VMOVD(s, x)
	d.VCVTPH2PS(x, x)
	return x
}
