package quant

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"

	"github.com/dormousekv/dormouse/kv"
)

//go:generate go run -C asm .

// kernel is a set of functions for one kind of CPU, and the methods in kernels_<arch>.go choose among them. All give the
// same bits. [kernelGo] is in plain Go and runs everywhere.
type kernel uint8

const (
	kernelGo kernel = iota
	kernelAVX2
	kernelAVX512
	kernelNEON
)

func (k kernel) String() string { return [...]string{"go", "avx2", "avx512", "neon"}[k] }

// KernelEnv is the environment variable that forces a kernel: go, avx2, avx512 or neon. It is read once, at start.
const KernelEnv = "DORMOUSE_KERNEL"

// active is what all planes are encoded and decoded with.
var active = choose(os.Getenv(KernelEnv))

// Kernel is the kernel in use: "go", "avx2", "avx512" or "neon". It is the fastest that the CPU has and that agreed with
// plain Go on a small sample at start, or the one that [KernelEnv] asks for. What was asked for and cannot be had (no such
// kernel, not on this CPU, it did not agree) leaves plain Go: nobody who forces a kernel measures another by mistake
// without being told here.
func Kernel() string { return active.String() }

func choose(forced string) kernel {
	for _, k := range kernels() {
		if (forced == "" || forced == k.String()) && k.agrees() {
			return k
		}
	}
	return kernelGo
}

// agrees reports whether k gives the bits of [kernelGo] on some 160 groups of all kinds.
func (k kernel) agrees() bool {
	if k == kernelGo {
		return true
	}
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		size := dt.RowBytes(groupValues)
		src := sampleGroups(dt)
		for _, n := range []int{1, 24, 29} { // what is left behind whole turns of a loop, turns only, both
			in := src[:n*size]
			src = src[n*size:]
			var codes, want [maskGroups * blockBytes]byte
			mask, worst := k.quantize(dt, codes[:n*blockBytes], in, 0)
			wantMask, wantWorst := quantizeGo(dt, want[:n*blockBytes], in)
			if mask != wantMask || worst != wantWorst || codes != want {
				return false
			}
			codes = [maskGroups * blockBytes]byte{}
			mask, worst, sum := k.quantizeSum(dt, codes[:n*blockBytes], in, 0, want[:n*blockBytes], 1)
			if mask != wantMask || worst != wantWorst || codes != want || sum != updateSum(1, want[:n*blockBytes]) {
				return false
			}
			codes[0], codes[1] = 0, 0x7e // a scale that no quantizer writes
			for range 2 {
				stored := codes[:n*blockBytes]
				wantOut := make([]byte, n*size)
				dequantizeGo(dt, wantOut, stored)
				wantSum := updateSum(1, stored)
				for _, stream := range []bool{false, true} {
					clear(in)
					k.dequantize(dt, in, stored, stream)
					if !bytes.Equal(in, wantOut) {
						return false
					}
					clear(in)
					if sum := k.dequantizeSum(dt, in, stored, stream, 1); sum != wantSum || !bytes.Equal(in, wantOut) {
						return false
					}
					clear(in)
					if sum := k.copySum(in, wantOut, stream, 1); sum != updateSum(1, wantOut) || !bytes.Equal(in, wantOut) {
						return false
					}
				}
				for g := range n { // then ordinary ones only
					binary.LittleEndian.PutUint16(codes[g*blockBytes:], uint16(f16MinNormal+1041*g))
				}
			}
		}
	}
	k.fence()
	return k.turnedAgree() && k.layoutsAgree()
}

// turnedAgree is agrees for Q4R.
func (k kernel) turnedAgree() bool {
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		src := sampleGroups(dt)
		size := dt.RowBytes(groupValuesQ4R)
		for _, n := range []int{1, 6, 15} {
			in := src[:n*size]
			var codes, want [maskGroups * blockBytesQ4R]byte
			mask, worst := k.quantizeQ4R(dt, codes[:n*blockBytesQ4R], in, 0)
			wantMask, wantWorst := quantizeQ4RGo(dt, want[:n*blockBytesQ4R], in)
			if mask != wantMask || worst != wantWorst || codes != want {
				return false
			}
			codes[0], codes[1] = 0, 0x7e // a scale that no quantizer writes
			stored, wantOut := codes[:n*blockBytesQ4R], make([]byte, n*size)
			dequantizeQ4RGo(dt, wantOut, stored)
			for _, stream := range []bool{false, true} {
				got := make([]byte, n*size)
				k.dequantizeQ4R(dt, got, stored, stream)
				if !bytes.Equal(got, wantOut) {
					return false
				}
				clear(got)
				if sum := k.dequantizeSumQ4R(dt, got, stored, stream, 1); sum != updateSum(1, stored) || !bytes.Equal(got, wantOut) {
					return false
				}
			}
		}
	}
	k.fence()
	return true
}

// layoutsAgree is agrees for the functions that only move bytes.
func (k kernel) layoutsAgree() bool {
	const elements = 8 * 40
	for _, size := range []int{2, 4} {
		src := sampleGroups(kv.F32)[:elements*size]
		got, want := make([]byte, len(src)), make([]byte, len(src))
		squares := elements / 64
		if k.transpose(size, got, src, 8*squares*size, 8*size, 8*size, 64*size, squares) {
			for r := range 8 * squares {
				for c := range 8 {
					copy(want[(c*8*squares+r)*size:], src[(r*8+c)*size:][:size])
				}
			}
			if !bytes.Equal(got, want) {
				return false
			}
		}
		var gotPlane, wantPlane [elements]byte
		for b := range size {
			k.split(gotPlane[:], src, b, size)
			splitGo(wantPlane[:], src, b, size)
			k.merge(got, src[:elements], b, size)
			mergeGo(want, src[:elements], b, size)
			if gotPlane != wantPlane || !bytes.Equal(got[:elements*size], want[:elements*size]) {
				return false
			}
		}
	}
	return true
}

// sampleGroups are 54 groups: mostly normal values of all scales, a few with NaN, infinity, zeros, and scales that f16
// does not hold.
func sampleGroups(dt kv.DType) []byte {
	src := make([]byte, 54*dt.RowBytes(groupValues))
	state := uint64(0x9e3779b97f4a7c15)
	top := []uint32{0x3c00, 0x3c00, 0x4400, 0x2400, 0x5c00, 0x0400, 0x7c00, 0x0000} // f16 exponents by group
	for at, i := 0, 0; at < len(src); i++ {
		state = state*6364136223846793005 + 1442695040888963407
		r := uint32(state >> 32)
		kind := top[i/groupValues%len(top)]
		h := uint16(r&0x83ff) | uint16(kind)
		if kind != 0 && kind != 0x7c00 {
			h -= uint16(r>>16&7) << 10 & uint16(kind)
		} else if i%groupValues != 9 {
			h &= 0x83ff
		}
		if kind == 0 && i/groupValues%3 == 0 {
			h = 0
		}
		switch dt {
		case kv.F16:
			binary.LittleEndian.PutUint16(src[at:], h)
		case kv.BF16:
			binary.LittleEndian.PutUint16(src[at:], f32ToBF16(f16ToF32(h)))
		default:
			binary.LittleEndian.PutUint32(src[at:], math.Float32bits(f16ToF32(h))^r>>19&0x1fff)
		}
		at += dt.GroupBytes()
	}
	return src
}
