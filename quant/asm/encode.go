package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const maskGroups = 64 // of one call

// Scales that int8 can use: from the smallest normal f16 to a limit that is kernels.go's, by type.
const minScale = 0x0400

func maxScale(dt dtype) uint32 {
	if dt.name == "F16" {
		return 0x6007
	}
	return 0x7bff
}

// encoder is one quantizing function. What int8 cannot hold is left to plain Go: the function says which groups.
type encoder struct {
	*x86
	dt       dtype
	dst, src reg.GPVirtual

	abs, sign, half, order, magic reg.VecVirtual
	split                         splitter
	worst                         reg.VecVirtual
}

// What a quantizing function notes of each of 64 groups: max |x|, 1/d, the rounded d, the f16 of d.
const (
	noteTops   = 0
	noteIDs    = noteTops + 4*maskGroups
	noteDs     = noteIDs + 4*maskGroups
	noteScales = noteDs + 4*maskGroups
	noteBytes  = noteScales + 2*maskGroups
)

// quantize goes over the groups twice, with all divisions in between: one by one, each group would wait for its own.
func (c *x86) quantize(dt dtype, crc bool) {
	name := "quantize" + dt.name + c.isa
	params, results, more := "worst uint32", "newWorst uint32", ""
	if crc {
		name = "quantize" + dt.name + "CRC" + c.isa
		params, results = params+", behind *byte, crc uint32", results+", newCRC uint32"
		more = " It also goes on with the CRC32C (inverted) of as many blocks at behind, which are complete."
	}
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr(fmt.Sprintf("func(dst, src *byte, groups int, notes *[%d]byte, %s) (exceptions uint64, %s)", noteBytes, params, results))
	c.Doc(name+" writes the blocks of the groups in src, 1 to 64. It returns a bit for each group that int8 cannot hold,",
		"whose block it does not write, and the bits of the largest error of all others, or worst if that is larger.",
		"notes are its working memory."+more)
	c.Pragma("noescape")
	e := &encoder{x86: c, dt: dt}
	e.dst, e.src = c.Load(c.Param("dst"), c.GP64()).(reg.GPVirtual), c.Load(c.Param("src"), c.GP64()).(reg.GPVirtual)
	groups := c.Load(c.Param("groups"), c.GP64()).(reg.GPVirtual)
	notes := c.Load(c.Param("notes"), c.GP64()).(reg.GPVirtual)
	note := func(at int, i reg.Register, scale uint8) Mem {
		return Mem{Base: notes, Disp: at, Index: i, Scale: scale}
	}

	at, i := c.GP64(), c.GP64()
	abs := uint32(0x7fffffff)
	if dt.bytes == 2 {
		abs = 0x7fff7fff
	}
	e.abs = c.broadcast(abs)
	c.MOVQ(e.src, at)
	c.XORQ(i, i)
	c.Label("top")
	c.MOVL(e.top(at), note(noteTops, i, 4))
	c.ADDQ(U32(groupValues*dt.bytes), at)
	c.INCQ(i)
	c.CMPQ(i, groups)
	c.JLT(LabelRef("top"))

	good, bits := c.GP64(), c.GP64()
	div, unit := c.broadcast(0x42fe0000), c.broadcast(0x3f800000)
	least, limit := c.broadcast(minScale), c.broadcast(maxScale(dt)-minScale)
	d, id, half, wide, low := c.YMM(), c.YMM(), c.XMM(), c.YMM(), c.YMM()
	// A group whose errors are certain to be below the largest so far need not compute them.
	exact, share := c.GP64(), c.broadcast(dt.errorShare())
	e.worst = c.YMM()
	before := c.XMM()
	c.VMOVD(c.Load(c.Param("worst"), c.GP32()), before)
	c.VBROADCASTSS(before, e.worst)
	c.XORQ(good, good)
	c.XORQ(exact, exact)
	c.XORQ(i, i)
	c.Label("divide")
	c.VMOVDQU(note(noteTops, i, 4), d)
	switch dt.name {
	case "F16":
		c.VPACKUSDW(d, d, d)
		c.VPERMQ(Imm(0x08), d, d)
		c.VCVTPH2PS(d.AsX(), d)
	case "BF16":
		c.VPSLLD(Imm(16), d, d)
	}
	c.VDIVPS(div, d, d)
	c.VDIVPS(d, unit, id)
	c.VMOVUPS(id, note(noteIDs, i, 4))
	c.VMULPS(share, d, id)
	c.VCMPPS(Imm(0x1e), e.worst, id, id) // greater
	c.VMOVMSKPS(id, bits.As32())
	c.SHLXQ(i, bits, bits)
	c.ORQ(bits, exact)
	c.VCVTPS2PH(Imm(0), d, half)
	c.VMOVDQU(half, note(noteScales, i, 2))
	c.VCVTPH2PS(half, d)
	c.VMOVUPS(d, note(noteDs, i, 4))
	c.VPMOVZXWD(half, wide)
	c.VPSUBD(least, wide, wide)
	c.VPMINUD(limit, wide, low)
	c.VPCMPEQD(low, wide, low)
	c.VMOVMSKPS(low, bits.As32())
	c.SHLXQ(i, bits, bits)
	c.ORQ(bits, good)
	c.ADDQ(Imm(8), i)
	c.CMPQ(i, groups)
	c.JLT(LabelRef("divide"))

	exceptions, scale := c.GP64(), c.GP32()
	var behind, sum reg.GPVirtual
	if crc {
		behind, sum = c.Load(c.Param("behind"), c.GP64()).(reg.GPVirtual), c.GP64()
		c.Load(c.Param("crc"), sum.As32())
	}
	e.constants()
	c.XORQ(exceptions, exceptions)
	c.XORQ(i, i)
	c.Label("group")
	c.BTQ(i, good)
	c.JCC(LabelRef("special"))
	c.MOVWLZX(note(noteScales, i, 2), scale)
	c.MOVW(scale.As16(), Mem{Base: e.dst})
	c.BTQ(i, exact)
	c.JCC(LabelRef("quick"))
	e.codes(note(noteDs, i, 4), note(noteIDs, i, 4), true)
	c.JMP(LabelRef("next"))
	c.Label("quick")
	e.codes(note(noteDs, i, 4), note(noteIDs, i, 4), false)
	c.Label("next")
	if crc {
		// One stream is enough: its latency passes while the codes are computed.
		for k := range 4 {
			c.CRC32Q(Mem{Base: behind, Disp: 8 * k}, sum)
		}
		c.CRC32W(Mem{Base: behind, Disp: 32}, sum.As32())
		c.ADDQ(U32(blockBytes), behind)
	}
	c.ADDQ(U32(blockBytes), e.dst)
	c.ADDQ(U32(groupValues*dt.bytes), e.src)
	c.INCQ(i)
	c.CMPQ(i, groups)
	c.JLT(LabelRef("group"))

	x := c.XMM()
	c.VEXTRACTI128(Imm(1), e.worst, x)
	c.VPMAXUD(x, e.worst.AsX(), x)
	c.maxAcross(x)
	c.VMOVD(x, scale)
	c.VZEROUPPER()
	c.Store(exceptions, c.ReturnIndex(0))
	c.Store(scale, c.ReturnIndex(1))
	if crc {
		c.Store(sum.As32(), c.ReturnIndex(2))
	}
	c.RET()

	// A group of zeros has the scale 0, and is no exception.
	c.Label("special")
	c.MOVL(note(noteTops, i, 4), scale)
	c.TESTL(scale, scale)
	c.JNZ(LabelRef("exception"))
	zero := c.YMM()
	c.VPXOR(zero, zero, zero)
	c.VMOVDQU(zero, Mem{Base: e.dst})
	c.VMOVDQU(zero, Mem{Base: e.dst, Disp: blockBytes - 32})
	c.JMP(LabelRef("next"))
	c.Label("exception")
	c.BTSQ(i, exceptions)
	c.JMP(LabelRef("next"))
}

func (e *encoder) constants() {
	e.sign, e.half = e.broadcast(1<<31), e.broadcast(0x3effffff)
	e.magic = e.broadcast(0x4b400000) // 1.5 x 2^23
	if drop := e.dt.drop(); drop > 0 {
		e.split = e.splitter(drop)
	}
	// The packing instructions work on halves of 128 bits: this puts their words of 4 codes in order.
	e.order = e.YMM()
	gp, x := e.GP64(), e.XMM()
	e.MOVQ(U64(0x0703060205010400), gp)
	e.VMOVQ(gp, x)
	e.VPMOVZXBD(x, e.order)
}

// top is max |x| of the group at src: bits in the tensor's type, without sign. Those are in the order of the numbers, with
// infinity and NaN above all.
func (e *encoder) top(src reg.GPVirtual) reg.GPVirtual {
	n := groupValues * e.dt.bytes / 32
	m, bits := e.YMM(), e.GP32()
	e.VPAND(Mem{Base: src}, e.abs, m)
	for k := 1; k < n; k++ {
		v := e.YMM()
		e.VPAND(Mem{Base: src, Disp: 32 * k}, e.abs, v)
		if e.dt.bytes == 2 {
			e.VPMAXUW(v, m, m)
		} else {
			e.VPMAXUD(v, m, m)
		}
	}
	x := e.XMM()
	e.VEXTRACTI128(Imm(1), m, x)
	if e.dt.bytes == 4 {
		e.VPMAXUD(x, m.AsX(), x)
		e.maxAcross(x)
		e.VMOVD(x, bits)
		return bits
	}
	// There is an instruction for the smallest of 8 words: of the complements it finds the largest.
	e.VPMAXUW(x, m.AsX(), x)
	e.VPXOR(e.abs.AsX(), x, x)
	e.VPHMINPOSUW(x, x)
	e.VMOVD(x, bits)
	e.XORL(U32(0x7fff), bits)
	e.ANDL(U32(0x7fff), bits)
	return bits
}

// maxAcross leaves the largest of 4 numbers in all lanes.
func (c *x86) maxAcross(x reg.VecVirtual) {
	y := c.XMM()
	for _, order := range []uint64{0x4e, 0xb1} {
		c.VPSHUFD(Imm(order), x, y)
		c.VPMAXUD(y, x, x)
	}
}

// codes writes the 32 codes and keeps the largest error. The scale is normal and its products are far from infinity, so
// that rounding them is the same in any way.
func (e *encoder) codes(d, id Mem, errors bool) {
	ids, ds := e.YMM(), e.YMM()
	e.VBROADCASTSS(id, ids)
	if errors {
		e.VBROADCASTSS(d, ds)
	}
	var q [4]reg.VecVirtual
	for k := range q {
		x, t, h := e.value(k), e.YMM(), e.YMM()
		e.VMULPS(ids, x, t)
		e.VANDPS(e.sign, t, h)
		e.VORPS(e.half, h, h)
		e.VADDPS(h, t, t)
		e.VCVTTPS2DQ(t, t)
		q[k] = t
		if errors {
			e.error(x, t, ds)
		}
		if k%2 == 1 {
			e.VPACKSSDW(q[k], q[k-1], q[k-1])
		}
	}
	e.VPACKSSWB(q[2], q[0], q[0])
	e.VPERMD(q[0], e.order, q[0])
	e.VMOVDQU(q[0], Mem{Base: e.dst, Disp: 2})
	for l := range groupValues * e.dt.bytes / 64 {
		e.PREFETCHT0(Mem{Base: e.src, Disp: encodePrefetchBytes + 64*l})
	}
}

// errorShare is what the errors of a group cannot exceed, as a share of d, in f32 bits and rounded up: half a step for
// rounding to a code; then 127 times the relative error 2^-11 of the f16 scale, and as much for rounding the product to f16,
// or 2^-8 to bf16.
func (dt dtype) errorShare() uint32 {
	share := map[string]float64{"F16": 0.5 + 127*(1./2048+1./2048), "BF16": 0.5 + 127*(1./2048+1./256), "F32": 0.5 + 127./2048}
	return math.Float32bits(float32(share[dt.name] * 1.01))
}

// error keeps the largest error of 8 values.
func (e *encoder) error(x, q, ds reg.VecVirtual) {
	// A small integer in the lowest bits of this float is added to it: two simple steps instead of a conversion, of
	// which a CPU starts fewer.
	y := e.YMM()
	e.VPADDD(e.magic, q, y)
	e.VSUBPS(e.magic, y, y)
	e.VMULPS(ds, y, y)
	if e.dt.drop() > 0 {
		e.split.round(e.x86, y)
	}
	e.VSUBPS(x, y, y)
	e.VANDNPS(y, e.sign, y)
	e.VPMAXUD(y, e.worst, e.worst)
}

const encodePrefetchBytes = 2 << 10

// value is 8 values of the group.
func (e *encoder) value(k int) reg.VecVirtual {
	v := e.YMM()
	m := Mem{Base: e.src, Disp: 8 * e.dt.bytes * k}
	switch e.dt.name {
	case "F16":
		e.VCVTPH2PS(m, v)
	case "BF16":
		e.VPMOVZXWD(m, v)
		e.VPSLLD(Imm(16), v, v)
	case "F32":
		e.VMOVUPS(m, v)
	}
	return v
}
