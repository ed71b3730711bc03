package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A block of a mid-sized model: 64 tokens of 8 KV heads x 128. Sets of planes are larger than the caches, and the
// buffers are warm. The reference to divide by is BenchmarkCopy: bytes are those of the caller's rows everywhere.
const (
	benchRows   = 64
	benchWidth  = 1024
	benchPlanes = 128
)

func benchTensor(dt kv.DType) kv.Tensor {
	return kv.Tensor{Role: kv.RoleK, DType: dt, Width: benchWidth}
}

// normalRows are rows x width values as attention sees them: normal, a few channels much larger.
func normalRows(dt kv.DType, rows, width int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]byte, 0, rows*dt.RowBytes(width))
	for range rows {
		for c := range width {
			v := float32(rng.NormFloat64())
			if c%61 == 7 {
				v *= 12
			}
			switch dt {
			case kv.F16:
				out = binary.LittleEndian.AppendUint16(out, f32ToF16(v))
			case kv.BF16:
				out = binary.LittleEndian.AppendUint16(out, f32ToBF16(v))
			default:
				out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
			}
		}
	}
	return out
}

func BenchmarkCopy(b *testing.B) {
	src := normalRows(kv.F16, benchRows*benchPlanes, benchWidth, 1)
	dst := make([]byte, len(src))
	copy(dst, src)
	plane := len(src) / benchPlanes
	b.SetBytes(int64(plane))
	for i := 0; b.Loop(); i++ {
		at := i % benchPlanes * plane
		copy(dst[at:at+plane], src[at:at+plane])
	}
}

func benchCases(b *testing.B, fn func(b *testing.B, c Codec, comp Compression, t kv.Tensor)) {
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		for _, c := range []Codec{Raw, Q8_0, ByteSplit, Q4R} {
			b.Run(fmt.Sprintf("%s/%s", dt, c), func(b *testing.B) { fn(b, c, None, benchTensor(dt)) })
		}
	}
	for comp := Zstd; comp.Valid(); comp++ {
		b.Run(fmt.Sprintf("f16/q8_0/%s", comp), func(b *testing.B) { fn(b, Q8_0, comp, benchTensor(kv.F16)) })
	}
}

func BenchmarkEncode(b *testing.B) {
	benchCases(b, func(b *testing.B, c Codec, comp Compression, t kv.Tensor) {
		src := normalRows(t.DType, benchRows*benchPlanes, benchWidth, 1)
		plane := len(src) / benchPlanes
		dst := make([]byte, 0, 2*plane)
		pieces := []kv.Piece{{Count: benchRows}}
		b.SetBytes(int64(plane))
		b.ReportAllocs()
		stored := 0
		for i := 0; b.Loop(); i++ {
			at := i % benchPlanes * plane
			pieces[0].Mem = src[at : at+plane]
			out, _, err := Encode(dst[:0], c, comp, t, kv.TensorRows{Pieces: pieces}, 0)
			if err != nil {
				b.Fatal(err)
			}
			stored = len(out)
		}
		b.ReportMetric(float64(plane)/float64(stored), "ratio")
	})
}

func BenchmarkDecode(b *testing.B) {
	benchCases(b, func(b *testing.B, c Codec, comp Compression, t kv.Tensor) {
		src := normalRows(t.DType, benchRows*benchPlanes, benchWidth, 1)
		plane := len(src) / benchPlanes
		var stored [benchPlanes][]byte
		var p Plane
		for i := range stored {
			var err error
			stored[i], p, err = Encode(nil, c, comp, t, kv.Packed(0, benchRows, src[i*plane:]), 0)
			if err != nil {
				b.Fatal(err)
			}
		}
		if p.Compression != comp {
			b.Skipf("%s does not make these planes 5 %% smaller", comp)
		}
		pieces := []kv.Piece{{Count: benchRows}}
		b.SetBytes(int64(plane))
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			at := i % benchPlanes * plane
			pieces[0].Mem = src[at : at+plane]
			if err := Decode(kv.TensorRows{Pieces: pieces}, t, p, stored[i%benchPlanes], 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkChannelMajor has V as attention without flash keeps it: elements of a row 4,096 positions apart.
func BenchmarkChannelMajor(b *testing.B) {
	const positions = 4096
	t := benchTensor(kv.F16)
	mem := make([]byte, positions*2*benchWidth)
	stored, p, err := Encode(nil, Q8_0, None, t, kv.Packed(0, benchRows, normalRows(kv.F16, benchRows, benchWidth, 1)), 0)
	if err != nil {
		b.Fatal(err)
	}
	pieces := []kv.Piece{{Count: benchRows, RowStride: 2, ElemStride: 2 * positions}}
	rows := kv.TensorRows{Pieces: pieces}
	at := func(i int) []byte { return mem[i%(positions/benchRows)*benchRows*2:] }
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(benchRows * benchWidth * 2)
		for i := 0; b.Loop(); i++ {
			pieces[0].Mem = at(i)
			if err := Decode(rows, t, p, stored, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(benchRows * benchWidth * 2)
		for i := 0; b.Loop(); i++ {
			pieces[0].Mem = at(i)
			if _, _, err := Encode(stored[:0], Q8_0, None, t, rows, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}
