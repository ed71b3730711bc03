package quant

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

func TestWideningIsExactForAll16BitNumbers(t *testing.T) {
	for h := range 1 << 16 {
		for name, got := range map[string][2]float64{
			"f16":  {float64(f16ToF32(uint16(h))), refWiden(uint16(h), 10, -14)},
			"bf16": {float64(bf16ToF32(uint16(h))), refFromBF16(uint16(h))},
		} {
			if math.Float64bits(got[0]) != math.Float64bits(got[1]) && !(math.IsNaN(got[0]) && math.IsNaN(got[1])) {
				t.Fatalf("%s %#04x is %g, want %g", name, h, got[0], got[1])
			}
		}
	}
}

// Around each 16-bit number, and around each midpoint between two of them, every f32 neighbour must round to nearest.
func TestNarrowingRoundsToNearestEven(t *testing.T) {
	check := func(f float32) {
		if got, want := f32ToF16(f), refF16(float64(f)); got != want {
			t.Fatalf("f16 of %g (%#08x) is %#04x, want %#04x", f, math.Float32bits(f), got, want)
		}
		if got, want := f32ToBF16(f), refBF16(float64(f)); got != want {
			t.Fatalf("bf16 of %g (%#08x) is %#04x, want %#04x", f, math.Float32bits(f), got, want)
		}
	}
	around := func(f float64) {
		b := math.Float32bits(float32(f))
		for _, n := range []uint32{b - 2, b - 1, b, b + 1, b + 2} {
			if v := math.Float32frombits(n); !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) {
				check(v)
				check(-v)
			}
		}
	}
	for h := uint16(0); h < 0x7bff; h++ {
		around(refFromF16(h))
		around((refFromF16(h) + refFromF16(h+1)) / 2)
	}
	around(65504)
	around(65520)
	for h := uint16(0); h < 0x7f7f; h++ {
		around(refFromBF16(h))
		around((refFromBF16(h) + refFromBF16(h+1)) / 2)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		if f := math.Float32frombits(rng.Uint32()); !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) {
			check(f)
		}
	}
}

func TestNarrowingKeepsNaNsAndInfinities(t *testing.T) {
	for h := uint16(0x7c00); h < 0x8000; h++ {
		for _, h := range []uint16{h, h | 0x8000} {
			want := h
			if h&0x3ff != 0 {
				want |= 0x200 // quiet
			}
			if got := f32ToF16(f16ToF32(h)); got != want {
				t.Fatalf("NaN or infinity %#04x becomes %#04x, want %#04x", h, got, want)
			}
		}
	}
	for _, bits := range []uint32{0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff} {
		if f := math.Float32frombits(bits); f32ToF16(f)&0x7fff <= 0x7c00 || f32ToBF16(f)&0x7fff <= 0x7f80 {
			t.Fatalf("NaN %#08x becomes %#04x, %#04x", bits, f32ToF16(f), f32ToBF16(f))
		}
	}
}

// stride visits all 16-bit numbers; with -short, for the race detector, one in 31.
func stride() int {
	if testing.Short() {
		return 31
	}
	return 1
}

// checkGroups compares all kernels with the reference on whole groups of dt: codes, exceptions, largest error.
func checkGroups(t *testing.T, dt kv.DType, src []byte) {
	t.Helper()
	for _, k := range kernels() {
		checkGroupsOf(t, k, dt, src)
	}
}

func checkGroupsOf(t *testing.T, k kernel, dt kv.DType, src []byte) {
	t.Helper()
	size := dt.RowBytes(groupValues)
	var dst [maskGroups * blockBytes]byte
	for len(src) > 0 {
		n := min(maskGroups, len(src)/size)
		mask, maxError := k.quantize(dt, dst[:n*blockBytes], src[:n*size], 0)
		want := 0.0
		for g := range n {
			x := values(dt, src[g*size:(g+1)*size])
			block := dst[g*blockBytes:][:blockBytes]
			why := refException(dt, x)
			if exception := mask>>g&1 == 1; exception != (why != "") {
				t.Fatalf("%s: %s group %v: exception is %t, want %q", k, dt, x, exception, why)
			}
			if why == "not finite" {
				if !bytes.Equal(block, make([]byte, blockBytes)) {
					t.Fatalf("%s: %s group %v: codes are % x, want zeros", k, dt, x, block)
				}
				continue
			}
			if ref := refBlock(x); !bytes.Equal(block, ref[:]) {
				t.Fatalf("%s: %s group %v:\ncodes % x\nwant  % x", k, dt, x, block, ref)
			}
			if why == "" {
				for j, v := range x {
					want = math.Max(want, float64(float32(math.Abs(refDecoded(dt, block, j)-float64(v)))))
				}
			}
		}
		if float64(maxError) != want {
			t.Fatalf("%s: %s: largest error is %g, want %g", k, dt, maxError, want)
		}
		src = src[n*size:]
	}
}

// Every finite f16 number alone in a group, in a group of its own copies, among random smaller ones, and as the maximum
// of a group whose other values lie next to the points where a code changes.
func TestQuantizeAllF16(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var src []byte
	for n := 0; n < 1<<16; n += stride() {
		h := uint16(n)
		if h&0x7fff >= 0x7c00 {
			continue
		}
		mag := h & 0x7fff
		var alone, copies, among, edges [groupValues]uint16
		alone[rng.IntN(groupValues)] = h
		d := float64(float32(refFromF16(mag)) / 127)
		for j := range groupValues {
			copies[j] = h
			among[j] = uint16(rng.IntN(int(mag)+1)) | uint16(rng.IntN(2))<<15
			edge := refF16((float64(rng.IntN(127)) + 0.5) * d)
			edges[j] = min(mag, edge+uint16(rng.IntN(3))-min(edge, 1)) | uint16(rng.IntN(2))<<15
		}
		among[rng.IntN(groupValues)] = h
		edges[rng.IntN(groupValues)] = h
		for _, group := range [][groupValues]uint16{alone, copies, among, edges} {
			for _, v := range group {
				src = binary.LittleEndian.AppendUint16(src, v)
			}
		}
		if len(src) >= 1<<16 {
			checkGroups(t, kv.F16, src)
			src = src[:0]
		}
	}
	checkGroups(t, kv.F16, src)
}

// Any bits at all, for all types.
func TestQuantizeRandomBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	groups := 20_000
	if testing.Short() {
		groups = 2_000
	}
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		for range groups {
			src := make([]byte, dt.RowBytes(groupValues))
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			if rng.IntN(4) > 0 { // mostly a narrow range of exponents, so that groups are finite and their codes differ
				base := byte(rng.IntN(0x7c))
				for i := dt.GroupBytes() - 1; i < len(src); i += dt.GroupBytes() {
					src[i] = src[i]&0x80 | (base + byte(rng.IntN(3)))
				}
			}
			checkGroups(t, dt, src)
		}
	}
}

// With a maximum of 127 the scale is 1, and codes are the rounded values themselves.
func TestQuantizeRoundsHalvesAwayFromZero(t *testing.T) {
	var src []byte
	group := []float32{127}
	add := func(v float32) {
		if group = append(group, v); len(group) == groupValues {
			src = append(src, elements(kv.F32, group...)...)
			group = group[:1]
		}
	}
	for k := range 127 {
		bits := math.Float32bits(float32(k) + 0.5)
		for ulps := uint32(0); ulps <= 64; ulps++ {
			for _, b := range []uint32{bits - ulps, bits + ulps} {
				add(math.Float32frombits(b))
				add(-math.Float32frombits(b))
			}
		}
	}
	checkGroups(t, kv.F32, src)
}

// Every scale with every code, for every type: 50 million products.
func TestDequantizeAllScalesAndCodes(t *testing.T) {
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		var src [8 * blockBytes]byte
		dst, want := make([]byte, 8*dt.RowBytes(groupValues)), make([]byte, 8*dt.RowBytes(groupValues))
		for scale := 0; scale < 1<<16; scale += stride() {
			for q := range 256 {
				block := src[q/groupValues*blockBytes:]
				binary.LittleEndian.PutUint16(block, uint16(scale))
				block[2+q%groupValues] = byte(q)
			}
			d := refFromF16(uint16(scale))
			if math.IsNaN(d) || math.IsInf(d, 0) {
				d = 0
			}
			for q := range 256 {
				v := d * float64(int8(q))
				switch dt {
				case kv.F16:
					binary.LittleEndian.PutUint16(want[2*q:], refF16(v))
				case kv.BF16:
					binary.LittleEndian.PutUint16(want[2*q:], refBF16(v))
				default:
					binary.LittleEndian.PutUint32(want[4*q:], math.Float32bits(float32(v)))
				}
			}
			for _, k := range kernels() {
				k.dequantize(dt, dst, src[:], false)
				if !bytes.Equal(dst, want) {
					t.Fatalf("%s: %s: scale %#04x times all codes is\n% x, want\n% x", k, dt, scale, dst, want)
				}
			}
		}
	}
}

// Every finite f16 number beside every larger one as its group's maximum: all codes that there are, against plain Go,
// which the tests above compare with the reference. One maximum in 61, all with DORMOUSE_EXHAUSTIVE=1.
func TestQuantizeAllPairsOfF16(t *testing.T) {
	step := 61
	if os.Getenv("DORMOUSE_EXHAUSTIVE") != "" {
		step = 1
	}
	const others = groupValues - 1
	src := make([]byte, maskGroups*2*groupValues)
	var got, want [maskGroups * blockBytes]byte
	check := func(n int) {
		wantMask, wantWorst := quantizeGo(kv.F16, want[:n*blockBytes], src[:n*2*groupValues])
		for _, k := range vectorKernels(t) {
			mask, worst := k.quantize(kv.F16, got[:n*blockBytes], src[:n*2*groupValues], 0)
			if mask != wantMask || worst != wantWorst || !bytes.Equal(got[:n*blockBytes], want[:n*blockBytes]) {
				t.Fatalf("%s: differs from plain Go on % x", k, src[:n*2*groupValues])
			}
		}
	}
	for top := 1; top < 0x7c00; top += step {
		n := 0
		for x := 0; x < top; x += others {
			group := src[n*2*groupValues:]
			binary.LittleEndian.PutUint16(group, uint16(top))
			for j := range others {
				binary.LittleEndian.PutUint16(group[2+2*j:], uint16(min(x+j, top)|(j&1)<<15))
			}
			if n++; n == maskGroups {
				check(n)
				n = 0
			}
		}
		if n > 0 {
			check(n)
		}
	}
}

// vectorKernels are those of this CPU, without plain Go.
func vectorKernels(t testing.TB) []kernel {
	all := kernels()
	if len(all) == 1 {
		t.Skip("SKIPPED: no vector kernel runs on this processor")
	}
	return all[:len(all)-1]
}

// The kernel in use is the fastest the CPU has, unless the environment asks for another; what cannot be had leaves plain
// Go.
func TestChooseKernel(t *testing.T) {
	all := kernels()
	t.Logf("kernels %v, in use: %s", all, Kernel())
	if all[len(all)-1] != kernelGo {
		t.Fatal("plain Go is missing")
	}
	if got := choose(""); got != all[0] {
		t.Errorf("%s is chosen, want %s: it does not agree with plain Go", got, all[0])
	}
	for _, k := range all {
		if got := choose(k.String()); got != k {
			t.Errorf("%s is asked for, %s is chosen", k, got)
		}
	}
	for _, name := range []string{"go", "neon", "sse9", "AVX2 "} {
		if got := choose(name); got != kernelGo && got.String() != name {
			t.Errorf("%q is asked for, %s is chosen", name, got)
		}
	}
}

// A kernel that gives one wrong bit is not used: agrees looks at every function. Here the sample is checked to contain what
// the functions must tell apart.
func BenchmarkSelfCheck(b *testing.B) {
	for _, k := range kernels() {
		b.Run(k.String(), func(b *testing.B) {
			for b.Loop() {
				if !k.agrees() {
					b.Fatal("does not agree")
				}
			}
		})
	}
}

// One scale that is not positive, normal and finite, anywhere among those that are: kernels may take the others another way.
func TestAnOddScaleAmongOthers(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	const n = 2*24 + 5
	odd := []uint16{0, 1, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0x7e00, 0x8000, 0x8001, 0x8400, 0xbc00, 0xfbff, 0xfc00, 0xffff}
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		size := dt.RowBytes(groupValues)
		got, want := make([]byte, n*size), make([]byte, n*size)
		for at := range n {
			for _, scale := range odd {
				codes := make([]byte, n*blockBytes)
				for g := range n {
					block := codes[g*blockBytes:][:blockBytes]
					for i := range block {
						block[i] = byte(rng.Uint32() >> rng.IntN(3))
					}
					binary.LittleEndian.PutUint16(block, uint16(f16MinNormal+rng.IntN(f16Inf-f16MinNormal)))
					block[2+rng.IntN(groupValues)] = 0
				}
				binary.LittleEndian.PutUint16(codes[at*blockBytes:], scale)
				dequantizeGo(dt, want, codes)
				for _, k := range vectorKernels(t) {
					for _, stream := range []bool{false, true} {
						clear(got)
						k.dequantize(dt, got, codes, stream)
						if !bytes.Equal(got, want) {
							t.Fatalf("%s: %s: scale %#04x at %d of %d, stream %t: wrong bytes", k, dt, scale, at, n, stream)
						}
						clear(got)
						if sum := k.dequantizeSum(dt, got, codes, stream, 1); sum != updateSum(1, codes) || !bytes.Equal(got, want) {
							t.Fatalf("%s: %s: scale %#04x at %d of %d, stream %t, checksum: wrong bytes or sum", k, dt, scale, at, n, stream)
						}
					}
				}
			}
		}
	}
}
