package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// quantizeTurned goes over a group's eight vectors of 8 values: those that the transform mixes are in the same lane of all.
func (c *x86) quantizeTurned(dt dtype, t turnedConstants) {
	name := "quantizeQ4R" + dt.name + c.isa
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func(dst, src *byte, groups int, worst uint32) (exceptions uint64, newWorst uint32)")
	c.Doc(name+" writes the Q4R blocks of the groups in src, 1 to 64. It returns a bit for each group that the codes cannot hold,",
		"whose block is zero, and the bits of the largest error of all others, or worst if that is larger.")
	c.Pragma("noescape")

	e := &encoder{x86: c, dt: dt}
	e.dst, e.src = c.Load(c.Param("dst"), c.GP64()).(reg.GPVirtual), c.Load(c.Param("src"), c.GP64()).(reg.GPVirtual)
	groups := c.Load(c.Param("groups"), c.GP64()).(reg.GPVirtual)
	exceptions, bit, bits := c.GP64(), c.GP64(), c.GP32()
	worst := c.YMM()
	c.VMOVD(c.Load(c.Param("worst"), c.GP32()), worst.AsX())
	c.XORQ(exceptions, exceptions)
	c.XORQ(bit, bit)

	c.Label("group")
	var r [8]reg.VecVirtual
	top := c.YMM()
	for k := range r {
		r[k] = e.value(k)
		if k == 0 {
			c.VPAND(t.abs, r[k], top)
			continue
		}
		v := c.YMM()
		c.VPAND(t.abs, r[k], v)
		c.VPMAXUD(v, top, top)
	}
	for l := range turnedValues * dt.bytes / 64 {
		c.PREFETCHT0(Mem{Base: e.src, Disp: encodePrefetchBytes + 64*l})
	}
	x := c.XMM()
	c.VEXTRACTI128(Imm(1), top, x)
	c.VPMAXUD(x, top.AsX(), x)
	c.maxAcross(x)
	c.VMOVD(x, bits)
	c.TESTL(bits, bits)
	c.JZ(LabelRef("zero"))
	c.CMPL(bits, U32(0x45000000)) // 2048
	c.JHI(LabelRef("exception"))

	c.turnVectors(&r, c.VADDPS, c.VSUBPS)
	low, high := c.YMM(), c.YMM()
	for k := range r {
		c.VMULPS(t.quarter, r[k], r[k])
		switch k {
		case 0:
		case 1:
			c.VMINPS(r[1], r[0], low)
			c.VMAXPS(r[1], r[0], high)
		default:
			c.VMINPS(r[k], low, low)
			c.VMAXPS(r[k], high, high)
		}
	}
	lo, hi := c.across(low, c.VMINPS), c.across(high, c.VMAXPS)
	zero, least, scale := c.XMM(), c.XMM(), c.XMM()
	c.VXORPS(zero, zero, zero)
	c.VADDPS(zero, lo, lo) // of both zeros the positive one
	c.VCVTPS2PH(Imm(0), lo, least)
	c.VCVTPH2PS(least, lo)
	c.VSUBPS(lo, hi, hi)
	c.VDIVPS(t.fifteen, hi, hi)
	c.VCVTPS2PH(Imm(0), hi, scale)
	c.VMOVD(scale, bits)
	c.MOVWLZX(bits.As16(), bits)
	test := c.GP32()
	c.LEAL(Mem{Base: bits, Disp: -minScale}, test)
	c.CMPL(test, U32(0x7c00-minScale))
	c.JCC(LabelRef("exception"))
	c.VPUNPCKLWD(least, scale, least)
	c.VMOVD(least, Mem{Base: e.dst})
	c.VCVTPH2PS(scale, scale)
	id := c.XMM()
	c.VMOVUPS(t.unit, id)
	c.VDIVPS(scale, id, id)

	ids, mins := c.YMM(), c.YMM()
	c.VBROADCASTSS(id, ids)
	c.VBROADCASTSS(lo, mins)
	none := c.YMM()
	c.VXORPS(none, none, none)
	for k := range r {
		c.VSUBPS(mins, r[k], r[k])
		c.VMULPS(ids, r[k], r[k])
		c.VMAXPS(none, r[k], r[k])
		c.VADDPS(t.half, r[k], r[k])
		c.VMINPS(t.fifteen, r[k], r[k])
		c.VCVTTPS2DQ(r[k], r[k])
	}
	// Lane i of all of them makes the bytes 4i to 4i+3.
	packed := c.YMM()
	for k := 1; k < len(r); k++ {
		v := c.YMM()
		c.VPSLLD(Imm(uint64(k%4*8+k/4*4)), r[k], v)
		if k == 1 {
			c.VPOR(r[0], v, packed)
		} else {
			c.VPOR(v, packed, packed)
		}
	}
	c.VMOVDQU(packed, Mem{Base: e.dst, Disp: 4})

	c.turnVectors(&r, c.VPADDD, c.VPSUBD)
	scales := ids
	c.VMULPS(t.factors, scale, scale) // half of it
	c.VBROADCASTSS(scale, scales)
	c.VMULPS(t.four, mins, mins)
	for k := range r {
		c.VCVTDQ2PS(r[k], r[k])
		c.VMULPS(scales, r[k], r[k])
		if k == 0 {
			c.VADDPS(mins, r[k], r[k])
		}
		switch dt.name {
		case "F16":
			h := c.XMM()
			c.VCVTPS2PH(Imm(0), r[k], h)
			c.VCVTPH2PS(h, r[k])
		case "BF16":
			last := c.YMM()
			c.VPSRLD(Imm(16), r[k], last)
			c.VPAND(t.one, last, last)
			c.VPADDD(t.round, r[k], r[k])
			c.VPADDD(last, r[k], r[k])
			c.VPAND(t.keep, r[k], r[k])
		}
		c.VSUBPS(e.value(k), r[k], r[k])
		c.VPAND(t.abs, r[k], r[k])
		c.VPMAXUD(r[k], worst, worst)
	}

	c.Label("next")
	c.ADDQ(U32(turnedBytes), e.dst)
	c.ADDQ(U32(turnedValues*dt.bytes), e.src)
	c.INCQ(bit)
	c.CMPQ(bit, groups)
	c.JLT(LabelRef("group"))

	c.VEXTRACTI128(Imm(1), worst, x)
	c.VPMAXUD(x, worst.AsX(), x)
	c.maxAcross(x)
	c.VMOVD(x, bits)
	c.VZEROUPPER()
	c.Store(exceptions, c.ReturnIndex(0))
	c.Store(bits, c.ReturnIndex(1))
	c.RET()

	c.Label("exception")
	c.BTSQ(bit, exceptions)
	c.Label("zero")
	empty := c.YMM()
	c.VPXOR(empty, empty, empty)
	c.VMOVDQU(empty, Mem{Base: e.dst})
	c.VMOVDQU(empty, Mem{Base: e.dst, Disp: turnedBytes - 32})
	c.JMP(LabelRef("next"))
}

// turnVectors is the transform, over the bits 5, 4 and 3 of a value's place: those of its vector's number.
func (c *x86) turnVectors(r *[8]reg.VecVirtual, add, sub func(...Op)) {
	for _, bit := range []int{4, 2, 1} {
		for k := range r {
			if k&bit == 0 {
				apart := c.YMM()
				sub(r[k|bit], r[k], apart)
				add(r[k|bit], r[k], r[k])
				r[k|bit] = apart
			}
		}
	}
}

// across leaves the least or largest of 8 numbers in all lanes of 128 bits.
func (c *x86) across(y reg.VecVirtual, most func(...Op)) reg.VecVirtual {
	x, other := c.XMM(), c.XMM()
	c.VEXTRACTI128(Imm(1), y, x)
	most(y.AsX(), x, x)
	for _, order := range []uint64{0x4e, 0xb1} {
		c.VPSHUFD(Imm(order), x, other)
		most(other, x, x)
	}
	return x
}
