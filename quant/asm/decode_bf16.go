package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// splitter rounds f32 numbers to fewer bits, ties to even: y becomes (2^n+1)*y - 2^n*y, the product before the minus rounded
// to f32. Its last bit is worth 2^n times y's, so what is left of y has n bits fewer. That a tie goes to even, and that
// nothing is off by one bit where (2^n+1)*y has a larger exponent than 2^n*y, holds for numbers whose last bit is 0: code
// times scale has at most 19 of 24. It makes +0 of -0.
type splitter struct{ far, more reg.VecVirtual } // 2^n, 2^n+1

func (c *x86) splitter(n int) splitter {
	far := uint32(127+n) << 23
	return splitter{far: c.broadcast(far), more: c.broadcast(far | 1<<(23-n))}
}

func (s splitter) round(c *x86, y reg.VecVirtual) {
	t := c.YMM()
	c.VMULPS(s.more, y, t)
	c.VFNMADD213PS(t, s.far, y)
}

// fused reports whether turns whose scales are all ordinary are rounded by the splitter.
func (d *decoder) fused() bool { return d.dt.name == "BF16" && d.isa == "AVX2" }

// ordinaryScales goes to other unless the next n scales are positive, normal and finite. No other scale makes -0 of a code.
func (d *decoder) ordinaryScales(n int, other LabelRef) {
	for g := range n {
		s := d.GP32()
		d.MOVWLZX(Mem{Base: d.src, Disp: g * blockBytes}, s)
		d.SUBL(U32(minScale), s)
		d.CMPL(s, U32(0x7c00-minScale))
		d.JCC(other)
	}
}

// ordinaryScale is scale for one that is positive, normal and finite.
func (d *decoder) ordinaryScale(in int) reg.VecVirtual {
	s, x, y := d.GP32(), d.XMM(), d.YMM()
	d.MOVWLZX(Mem{Base: d.src, Disp: in}, s)
	d.SHLL(Imm(13), s)
	d.ADDL(U32((127-15-24)<<23), s) // with the shift of the codes
	d.VMOVD(s, x)
	d.VBROADCASTSS(x, y)
	return y
}

func (d *decoder) constantsBF16() {
	d.round, d.one = d.broadcast(0x7fff), d.broadcast(1)
	d.split = d.splitter(16)
	d.shift = d.broadcast(0x33800000) // 2^-24
	// For each lane the code that goes to its upper 8 bits; 0x80 clears.
	control := func(first uint64) reg.VecVirtual {
		x, y := d.XMM(), d.YMM()
		gp := d.GP64()
		bytes := first | (first+2)<<8 | (first+4)<<16 | (first+6)<<24 // of 4 lanes
		bytes |= (bytes + 0x08080808) << 32
		d.MOVQ(U64(bytes), gp)
		d.VMOVQ(gp, x)
		d.VPMOVZXBD(x, y)
		d.VPSLLD(Imm(24), y, y)
		d.VPOR(d.clear, y, y)
		return y
	}
	d.clear = d.broadcast(0x00808080)
	d.even, d.odd = control(0), control(1)
}

// bf16 takes even and odd codes apart, so that the halves of the results only have to be blended. Codes are left in the
// upper 8 bits of their lanes: the scale makes up for it.
func (d *decoder) bf16(in int, scale reg.VecVirtual, store func(v reg.VecVirtual, at int)) {
	for k := range 2 {
		codes := d.YMM()
		d.VBROADCASTI128(Mem{Base: d.src, Disp: in + 16*k}, codes)
		var v [2]reg.VecVirtual
		for i, order := range []reg.VecVirtual{d.even, d.odd} {
			v[i] = d.YMM()
			d.VPSHUFB(order, codes, v[i])
			d.VCVTDQ2PS(v[i], v[i])
			d.VMULPS(scale, v[i], v[i])
			if d.quick {
				d.split.round(d.x86, v[i])
				continue
			}
			last := d.YMM()
			d.VPSRLD(Imm(16), v[i], last)
			d.VPAND(d.one, last, last)
			d.VPADDD(d.round, v[i], v[i])
			d.VPADDD(last, v[i], v[i])
		}
		d.VPSRLD(Imm(16), v[0], v[0])
		d.VPBLENDW(Imm(0xaa), v[1], v[0], v[0])
		store(v[0], 32*k)
	}
}
