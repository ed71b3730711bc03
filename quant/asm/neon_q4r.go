package main

// dequantizeTurned has the codes that the transform mixes in the same lane of eight registers: the instruction that loads takes
// every fourth byte.
func (n *neon) dequantizeTurned(dt dtype, crc bool) {
	name, params, results, frame := "dequantizeQ4R"+dt.name, "dst, src *byte, groups int", "", 24
	doc := "writes the values of groups Q4R blocks, at least one."
	if crc {
		name, params, results, frame = name+"CRC", params+", crc uint32", " uint32", 36
		doc = "writes the values of groups Q4R blocks, at least one, and goes on with the CRC32C (inverted) of their bytes."
	}
	n.function(name+"NEON", params, results, doc, frame)
	n.op("MOVD dst+0(FP), R0")
	n.op("MOVD src+8(FP), R1")
	n.op("MOVD groups+16(FP), R2")
	if crc {
		n.op("MOVWU crc+24(FP), R3")
	}
	const scale, least, round, one, half, four, nibbles = 16, 24, 17, 18, 25, 26, 27
	if dt.name == "BF16" {
		n.fill(round, 0x7fff)
		n.fill(one, 1)
	}
	n.fill(half, 0x3f000000)
	n.fill(four, 0x40800000)
	n.fill(nibbles, 0x0f0f0f0f)
	n.label("group")
	for _, x := range []struct{ at, reg, factor uint32 }{{0, scale, half}, {2, least, four}} {
		n.op("MOVHU %d(R1), R4", x.at) // what is not finite counts as 0
		n.op("AND $0x7c00, R4, R5")
		n.op("CMPW $0x7c00, R5")
		n.op("CSEL EQ, ZR, R4, R4")
		n.word(toVector, x.reg, 4)
		n.word(fcvtHtoS, x.reg, x.reg)
		n.word(fmul, x.reg, x.reg, x.factor)
	}
	n.op("VDUP V%d.S[0], V%d.S4", least, least)
	n.op("ADD $4, R1, R6")
	n.op("VLD4 (R6), [V0.B8, V1.B8, V2.B8, V3.B8]")
	n.op("PRFM %d(R1), PLDL1KEEP", prefetchBytes)
	if crc {
		n.op("LDP (R1), (R7, R8)")
		n.op("LDP 16(R1), (R10, R11)")
		n.op("MOVWU 32(R1), R12")
		for _, r := range []int{7, 8, 10, 11} {
			n.op("CRC32CX R%d, R3", r)
		}
		n.op("CRC32CW R12, R3")
	}
	for j := range 4 {
		n.op("VUSHR $4, V%d.B8, V%d.B8", j, 4+j)
		n.op("VAND V%d.B8, V%d.B8, V%d.B8", nibbles, j, j)
	}
	from, to := 0, 8
	for _, bit := range []int{4, 2, 1} { // from V0 to V8, back, and to V8
		for k := range 8 {
			if k&bit == 0 {
				n.op("VADD V%d.B8, V%d.B8, V%d.B8", from+k+bit, from+k, to+k)
				n.op("VSUB V%d.B8, V%d.B8, V%d.B8", from+k+bit, from+k, to+k+bit)
			}
		}
		from, to = to, from
	}
	for k := range uint32(8) {
		n.word(sxtl8, 0, 8+k)
		n.word(sxtl16, 1, 0)
		n.word(sxtl16hi, 2, 0)
		for v := uint32(1); v <= 2; v++ {
			n.word(scvtf, v, v)
			n.word(fmulLane, v, v, scale)
			if k == 0 {
				n.word(fadd, v, v, least)
			}
			if dt.name == "BF16" {
				n.roundBF16(v, round, one)
			}
		}
		switch dt.name {
		case "F16":
			n.word(fcvtn, 20+k%4, 1)
			n.word(fcvtnHi, 20+k%4, 2)
		case "BF16":
			n.word(shrn, 20+k%4, 1)
			n.word(shrnHi, 20+k%4, 2)
		case "F32":
			n.op("VST1.P [V1.B16, V2.B16], 32(R0)")
		}
		if dt.bytes == 2 && k%4 == 3 {
			n.op("VST1.P [V20.B16, V21.B16, V22.B16, V23.B16], 64(R0)")
		}
	}
	n.op("ADD $%d, R1", turnedBytes)
	n.op("SUBS $1, R2")
	n.op("BNE group")
	if crc {
		n.op("MOVW R3, ret+32(FP)")
	}
	n.op("RET")
}
