package quant

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// The same arithmetic as q4r.go's, from its definition and in float64, where each step is exact or rounds innocuously.

// refTurn is T of x: the sum of all values whose places differ only in the bits 3, 4 and 5, each with its sign.
func refTurn(x []float64) []float64 {
	out := make([]float64, len(x))
	for j := range x {
		for k, v := range x {
			switch {
			case (j^k)&7 != 0:
			case bits.OnesCount(uint(j&k&56))%2 == 0:
				out[j] += v
			default:
				out[j] -= v
			}
		}
	}
	return out
}

// refTurnF32 is T in steps, each rounded to f32.
func refTurnF32(x []float32) []float32 {
	x = slices.Clone(x)
	for _, bit := range []int{32, 16, 8} {
		for j := range x {
			if j&bit == 0 {
				a, b := float64(x[j]), float64(x[j+bit])
				x[j], x[j+bit] = float32(a+b), float32(a-b)
			}
		}
	}
	return x
}

// refBlockQ4R quantizes 64 values. It says why they are an exception, or "".
func refBlockQ4R(x []float32) (block [36]byte, why string) {
	amax := 0.0
	for _, v := range x {
		if math.IsNaN(float64(v)) {
			return block, "not finite"
		}
		amax = math.Max(amax, math.Abs(float64(v)))
	}
	if amax == 0 {
		return block, ""
	}
	if amax > 2048 {
		return block, "large"
	}
	lo, hi := math.Inf(1), math.Inf(-1)
	r := refTurnF32(x)
	for j := range r {
		r[j] /= 4
		lo, hi = math.Min(lo, float64(r[j])), math.Max(hi, float64(r[j]))
	}
	least := refF16(lo)
	if lo == 0 {
		least = 0
	}
	m := refFromF16(least)
	scale := refF16(float64(float32(float64(float32(hi-m)) / 15)))
	d := refFromF16(scale)
	if d < math.Ldexp(1, -14) {
		return block, "underflow"
	}
	id := float64(float32(1 / d))
	binary.LittleEndian.PutUint16(block[0:], scale)
	binary.LittleEndian.PutUint16(block[2:], least)
	for j, v := range r {
		q := math.Max(0, float64(float32(float64(float32(float64(v)-m))*id)))
		q = math.Floor(math.Min(15, float64(float32(q+0.5))))
		block[4+4*(j%8)+j/8%4] |= byte(q) << (j / 32 * 4)
	}
	return block, ""
}

// refDecodedQ4R are the values of a block, in the tensor's type.
func refDecodedQ4R(dt kv.DType, block []byte) []float64 {
	out := refValuesQ4R(block)
	for j, v := range out {
		switch dt {
		case kv.F16:
			out[j] = refFromF16(refF16(v))
		case kv.BF16:
			out[j] = refFromBF16(refBF16(v))
		}
	}
	return out
}

// refValuesQ4R are the values of a block, in f32.
func refValuesQ4R(block []byte) []float64 {
	number := func(b []byte) float64 {
		v := refFromF16(binary.LittleEndian.Uint16(b))
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0
		}
		return v
	}
	d, m := number(block), number(block[2:])
	q := make([]float64, 64)
	for j := range q {
		q[j] = float64(block[4+4*(j%8)+j/8%4] >> (j / 32 * 4) & 15)
	}
	q = refTurn(q)
	for j := range q {
		q[j] *= d / 2
		if j < 8 {
			q[j] += 4 * m
		}
		q[j] = float64(float32(q[j]))
	}
	return q
}

// checkGroupsQ4R compares all kernels with the reference on whole groups of dt.
func checkGroupsQ4R(t rapid.TB, dt kv.DType, src []byte) {
	t.Helper()
	size := dt.RowBytes(groupValuesQ4R)
	for len(src) > 0 {
		n := min(maskGroups, len(src)/size)
		var want, got [maskGroups * blockBytesQ4R]byte
		var wantMask uint64
		worst := 0.0
		for g := range n {
			x := values(dt, src[g*size:(g+1)*size])
			block, why := refBlockQ4R(x)
			copy(want[g*blockBytesQ4R:], block[:])
			if why != "" {
				wantMask |= 1 << g
				continue
			}
			for j, y := range refDecodedQ4R(dt, block[:]) {
				worst = math.Max(worst, float64(float32(math.Abs(y-float64(x[j])))))
			}
		}
		for _, k := range kernels() {
			for i := range got {
				got[i] = canary
			}
			mask, found := k.quantizeQ4R(dt, got[:n*blockBytesQ4R], src[:n*size], 0)
			if mask != wantMask {
				t.Fatalf("%s: %s: exceptions %064b, want %064b", k, dt, mask, wantMask)
			}
			for g := range n {
				a, b := got[g*blockBytesQ4R:][:blockBytesQ4R], want[g*blockBytesQ4R:][:blockBytesQ4R]
				if !bytes.Equal(a, b) {
					t.Fatalf("%s: %s group %v:\ncodes % x\nwant  % x", k, dt, values(dt, src[g*size:(g+1)*size]), a, b)
				}
			}
			if float64(found) != worst {
				t.Fatalf("%s: %s: largest error is %g, want %g", k, dt, found, worst)
			}
			if _, more := k.quantizeQ4R(dt, got[:n*blockBytesQ4R], src[:n*size], 1e9); more != 1e9 {
				t.Fatalf("%s: %s: a largest error of 1e9 becomes %g", k, dt, more)
			}
		}
		checkBlocksQ4R(t, dt, want[:n*blockBytesQ4R])
		src = src[n*size:]
	}
}

// checkBlocksQ4R compares what all kernels make of blocks with the reference, with checksums and without.
func checkBlocksQ4R(t rapid.TB, dt kv.DType, stored []byte) {
	t.Helper()
	var want []byte
	for b := stored; len(b) > 0; b = b[blockBytesQ4R:] {
		for _, v := range refValuesQ4R(b[:blockBytesQ4R]) {
			switch dt {
			case kv.F16:
				want = binary.LittleEndian.AppendUint16(want, refF16(v))
			case kv.BF16:
				want = binary.LittleEndian.AppendUint16(want, refBF16(v))
			default:
				want = binary.LittleEndian.AppendUint32(want, math.Float32bits(float32(v)))
			}
		}
	}
	size := dt.RowBytes(groupValuesQ4R)
	compare := func(k kernel, out []byte) {
		t.Helper()
		for g := 0; g*size < len(want); g++ {
			if !bytes.Equal(out[g*size:][:size], want[g*size:][:size]) {
				t.Fatalf("%s: %s: block %d of %d, % x, is\n% x, want\n% x", k, dt, g, len(want)/size, stored[g*blockBytesQ4R:][:blockBytesQ4R], out[g*size:][:size], want[g*size:][:size])
			}
		}
	}
	sum := updateSum(7, stored)
	memory := make([]byte, len(want)+128)
	for _, shift := range []int{0, 2, 16, 32} { // around the caches only where memory is aligned
		out := memory[64+shift : 64+shift+len(want)]
		for _, k := range kernels() {
			for _, stream := range []bool{false, true} {
				for i := range memory {
					memory[i] = canary
				}
				k.dequantizeQ4R(dt, out, stored, stream)
				k.fence()
				compare(k, out)
				clear(out)
				got := k.dequantizeSumQ4R(dt, out, stored, stream, 7)
				k.fence()
				compare(k, out)
				if got != sum {
					t.Fatalf("%s: %s: the checksum of %d blocks is %08x, want %08x", k, dt, len(stored)/blockBytesQ4R, got, sum)
				}
				if bytes.Count(memory[:64+shift], []byte{canary}) != 64+shift || bytes.Count(memory[64+shift+len(want):], []byte{canary}) != 64-shift {
					t.Fatalf("%s: %s: wrote outside of its memory", k, dt)
				}
			}
		}
	}
}

// Values of all kinds, each with values of its own kind and of others.
func TestQ4RRandomGroups(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	n := 4000
	if testing.Short() {
		n = 400
	}
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		var src []byte
		for i := range n {
			far := math.Ldexp(1, rng.IntN(40)-25)
			offset := float64(rng.IntN(3)) * math.Ldexp(1, rng.IntN(20)-10)
			for range groupValuesQ4R {
				v := rng.NormFloat64()*far + offset
				switch i % 8 {
				case 1:
					v = math.Round(v) // many the same
				case 2:
					v = math.Copysign(0, v)
				case 3:
					v = math.Copysign(float64(rng.IntN(2))*far, v)
				case 4:
					if rng.IntN(groupValuesQ4R) == 0 {
						v = []float64{math.NaN(), math.Inf(1), math.Inf(-1), 2048, 2049, -2048, 2050}[rng.IntN(7)]
					}
				case 5:
					v = offset
				}
				switch dt { // [elements] is for finite values
				case kv.F16:
					src = binary.LittleEndian.AppendUint16(src, f32ToF16(float32(v)))
				case kv.BF16:
					src = binary.LittleEndian.AppendUint16(src, f32ToBF16(float32(v)))
				default:
					src = binary.LittleEndian.AppendUint32(src, math.Float32bits(float32(v)))
				}
			}
			if rng.IntN(20) == 0 { // calls of any number of groups
				checkGroupsQ4R(t, dt, src)
				src = src[:0]
			}
		}
		checkGroupsQ4R(t, dt, src)
	}
}

// Any bits at all are decoded the same by all kernels: also those that no quantizer writes.
func TestQ4RRandomBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	n := 300
	if testing.Short() {
		n = 30
	}
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		for i := range n {
			stored := make([]byte, (1+rng.IntN(20))*blockBytesQ4R)
			for j := range stored {
				stored[j] = byte(rng.Uint32())
			}
			for b := stored; len(b) > 0; b = b[blockBytesQ4R:] {
				scales := []uint16{0, 0x8000, 1, 0x8001, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe01}
				if rng.IntN(2) == 0 {
					binary.LittleEndian.PutUint16(b[0:], scales[rng.IntN(len(scales))])
					binary.LittleEndian.PutUint16(b[2:], scales[rng.IntN(len(scales))])
				}
				if i%3 == 0 { // all codes the same: sums of 0, and the largest
					copy(b[4:blockBytesQ4R], bytes.Repeat([]byte{17 * byte(rng.IntN(16))}, 32))
				}
			}
			checkBlocksQ4R(t, dt, stored)
		}
	}
}

// Every scale with every sum that there can be, and some minima.
func TestQ4RAllScales(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		var stored []byte
		for scale := 0; scale < 1<<16; scale += 8*stride() - 7 {
			block := make([]byte, blockBytesQ4R)
			binary.LittleEndian.PutUint16(block, uint16(scale))
			binary.LittleEndian.PutUint16(block[2:], uint16(rng.Uint32()))
			for j := 4; j < len(block); j++ {
				block[j] = byte(rng.Uint32())
			}
			if stored = append(stored, block...); len(stored) >= 64*blockBytesQ4R {
				checkBlocksQ4R(t, dt, stored)
				stored = stored[:0]
			}
		}
	}
}

// Exceptions are exactly the groups that the codes cannot hold and the exact rows; they come back bit by bit; all other
// values come back within what half a step of each of the 8 that are mixed can make; MaxError is the largest error.
func TestQ4RKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tensor := drawFloatTensor(rt)
		tensor.Role, tensor.Width = kv.RoleV, tensor.Width*2
		rows := rapid.IntRange(1, 40).Draw(rt, "rows")
		exact := rapid.IntRange(0, 4).Draw(rt, "exact rows")
		src := drawFloats(rt, tensor, rows)
		stored, p := mustEncode(rt, Q4R, None, tensor, kv.Packed(0, rows, src), exact)
		out := mustDecode(rt, tensor, p, stored, 0, rows)
		size := tensor.DType.RowBytes(groupValuesQ4R)
		var want []int
		worst := 0.0
		for g := 0; g*size < len(src); g++ {
			in, back := src[g*size:(g+1)*size], out[g*size:(g+1)*size]
			x, y := values(tensor.DType, in), values(tensor.DType, back)
			block, why := refBlockQ4R(x)
			if !bytes.Equal(block[:], stored[g*blockBytesQ4R:][:blockBytesQ4R]) {
				rt.Fatalf("group %d (%s): codes % x, want % x", g, why, stored[g*blockBytesQ4R:][:blockBytesQ4R], block)
			}
			if why != "" || g < exact*tensor.Width/groupValuesQ4R {
				if want = append(want, g); !bytes.Equal(in, back) {
					rt.Fatalf("exception %d (%s) comes back as % x, want % x", g, why, back, in)
				}
				continue
			}
			amax := 0.0
			for _, v := range x {
				amax = math.Max(amax, math.Abs(float64(v)))
			}
			// Each of the 8 that are mixed is off by half a step and what scale and minimum are rounded by; then /2.
			d := refFromF16(binary.LittleEndian.Uint16(block[:]))
			bound := 8*(d/2+15*d/(1<<11)+2*amax/(1<<11))/2 + amax/map[kv.DType]float64{kv.F16: 1 << 10, kv.BF16: 1 << 7, kv.F32: 1 << 20}[tensor.DType]
			for j := range x {
				e := math.Abs(float64(y[j]) - float64(x[j]))
				if worst = math.Max(worst, e); e > bound*1.01 {
					rt.Fatalf("group %d: %g comes back as %g, more than %g away", g, x[j], y[j], bound)
				}
			}
		}
		if got := exceptionsOf(rt, tensor, p, stored); !slices.Equal(got, want) {
			rt.Fatalf("exceptions %v, want %v", got, want)
		}
		if p.MaxError != float32(worst) {
			rt.Fatalf("MaxError is %g, the largest error %g", p.MaxError, worst)
		}
	})
}
