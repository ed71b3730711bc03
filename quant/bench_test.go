package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

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

// BenchmarkHeadMajor has the rows of 8 heads of 128 values token by token, and head by head in a cache of 4,096 tokens.
func BenchmarkHeadMajor(b *testing.B) {
	const positions, heads = 4096, 8
	t := benchTensor(kv.F16)
	mem := make([]byte, positions*2*benchWidth)
	for _, c := range []Codec{Raw, Q8_0} {
		stored, p, err := Encode(nil, c, None, t, kv.Packed(0, benchRows, normalRows(kv.F16, benchRows, benchWidth, 1)), 0)
		if err != nil {
			b.Fatal(err)
		}
		dst, row := make([]byte, 0, 2*len(stored)), 2*benchWidth
		for name, piece := range map[string]kv.Piece{
			"tokens": {Count: benchRows, RowStride: row},
			"heads":  {Count: benchRows, RowStride: row / heads, Heads: heads, HeadStride: positions * row / heads},
		} {
			pieces := []kv.Piece{piece}
			rows := kv.TensorRows{Pieces: pieces}
			at := func(i int) []byte { return mem[i%(positions/benchRows)*benchRows*piece.RowStride:] }
			b.Run(fmt.Sprintf("decode/%s/%s", c, name), func(b *testing.B) {
				b.SetBytes(benchRows * benchWidth * 2)
				for i := 0; b.Loop(); i++ {
					pieces[0].Mem = at(i)
					if err := Decode(rows, t, p, stored, 0); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(fmt.Sprintf("encode/%s/%s", c, name), func(b *testing.B) {
				b.SetBytes(benchRows * benchWidth * 2)
				for i := 0; b.Loop(); i++ {
					pieces[0].Mem = at(i)
					if _, _, err := Encode(dst[:0], c, None, t, rows, 0); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// Whole restores and puts, from memory to memory: 256 MiB of f16 rows in planes of 64 rows x 1,024, warm buffers, on one
// and on two goroutines. Divide by "copy" of the same run, which copies the same rows: bytes are those of the rows.
const (
	memoryPlanes = 2048
	planeBytes   = benchRows * benchWidth * 2
)

// benchPlanesOn runs fn for all planes in each turn, on n goroutines. Beside the overall rate it reports that of the median
// plane, times n: it stays the same when other programs take the processor away for a while.
func benchPlanesOn(b *testing.B, n, planes, bytes int, fn func(plane int)) {
	b.SetBytes(int64(planes * bytes))
	b.ReportAllocs()
	took := make([]time.Duration, planes)
	var medians []time.Duration
	for b.Loop() {
		var wg sync.WaitGroup
		for g := range n {
			wg.Go(func() {
				for i := planes * g / n; i < planes*(g+1)/n; i++ {
					start := time.Now()
					fn(i)
					took[i] = time.Since(start)
				}
			})
		}
		wg.Wait()
		slices.Sort(took)
		medians = append(medians, took[planes/2])
	}
	slices.Sort(medians)
	b.ReportMetric(float64(n*bytes)/float64(medians[len(medians)/2].Nanoseconds()), "median-GB/s")
}

type memoryRig struct {
	t        kv.Tensor
	rows     []byte // the caller's
	other    []byte // as large
	stored   [][]byte
	plane    Plane
	sums     []uint32
	rowBytes int
}

func newMemoryRig(b *testing.B, c Codec, dt kv.DType, planes int) *memoryRig {
	r := &memoryRig{t: benchTensor(dt)}
	r.rowBytes = r.t.RowBytes()
	bytes := benchRows * r.rowBytes
	one := normalRows(dt, benchRows, benchWidth, 1)
	r.rows, r.other = make([]byte, planes*bytes), make([]byte, planes*bytes)
	var all []byte
	for i := range planes {
		copy(r.rows[i*bytes:], one)
		copy(r.other[i*bytes:], one)
		if all == nil {
			first, p, err := Encode(nil, c, None, r.t, kv.Packed(0, benchRows, one), 0)
			if err != nil {
				b.Fatal(err)
			}
			r.plane = p
			all = make([]byte, planes*((len(first)+63)&^63))
			r.stored = append(r.stored, all[:copy(all, first)])
		} else {
			n := len(r.stored[0])
			at := i * ((n + 63) &^ 63)
			r.stored = append(r.stored, all[at:at+copy(all[at:], r.stored[0])])
		}
		r.sums = append(r.sums, updateSum(0, r.stored[i]))
	}
	return r
}

// mem is the memory of plane i in r.rows or r.other.
func (r *memoryRig) mem(all []byte, i int) []byte {
	return all[i*benchRows*r.rowBytes:][:benchRows*r.rowBytes]
}

// benchMemory runs fn in cases with names, on 1 and on 2 goroutines, each beside the copy that it is divided by.
func benchMemory(b *testing.B, c Codec, dt kv.DType, planes int, cases func(r *memoryRig, run func(name string, fn func(i int)))) {
	b.Run(fmt.Sprintf("%s/%s", dt, c), func(b *testing.B) {
		r := newMemoryRig(b, c, dt, planes)
		for _, n := range []int{1, 2} {
			run := func(name string, fn func(i int)) {
				b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
					benchPlanesOn(b, n, planes, benchRows*r.rowBytes, fn)
				})
			}
			run("copy", func(i int) { copy(r.mem(r.rows, i), r.mem(r.other, i)) })
			cases(r, run)
		}
	})
}

// BenchmarkMemoryDecode has the restore's direction: ordinary stores and around the caches, verified and not, and in two
// passes over pieces that fit the first cache.
func BenchmarkMemoryDecode(b *testing.B) {
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		for _, c := range []Codec{Q8_0, Q4R, Raw} {
			benchMemory(b, c, dt, memoryPlanes*2/dt.GroupBytes(), func(r *memoryRig, run func(string, func(int))) { r.decodeCases(b, run) })
		}
	}
}

// BenchmarkCachedDecode is the same for rows that stay in the second cache.
func BenchmarkCachedDecode(b *testing.B) {
	benchMemory(b, Q8_0, kv.F16, 2, func(r *memoryRig, run func(string, func(int))) { r.decodeCases(b, run) })
}

func (r *memoryRig) decodeCases(b *testing.B, run func(string, func(int))) {
	for _, how := range []reading{{}, {sum: true}, {stream: true}, {stream: true, sum: true}} {
		name := map[bool]string{false: "cached", true: "stream"}[how.stream] + map[bool]string{true: "+sum"}[how.sum]
		run(name, func(i int) {
			sum, err := decode(kv.Packed(0, benchRows, r.mem(r.rows, i)), r.t, r.plane, r.stored[i], 0, how)
			if err != nil || how.sum && sum != r.sums[i] {
				b.Fatal(err, sum)
			}
		})
	}
	run("verified", func(i int) {
		dst := kv.Packed(0, benchRows, r.mem(r.rows, i))
		if err := DecodeVerified(dst, r.t, r.plane, r.stored[i], 0, r.sums[i], DecodeOptions{Bytes: int64(len(r.rows))}); err != nil {
			b.Fatal(err)
		}
	})
	if r.plane.Codec == Q8_0 {
		run("passes+sum", func(i int) {
			mem, stored, sum := r.mem(r.rows, i), r.stored[i], uint32(0)
			for len(stored) > 0 {
				n := min(480*blockBytes, len(stored)) // 16 KiB
				sum = updateSum(sum, stored[:n])
				active.dequantize(r.t.DType, mem, stored[:n], true)
				stored, mem = stored[n:], mem[n/blockBytes*r.t.DType.RowBytes(groupValues):]
			}
		})
	}
}

// BenchmarkMemoryEncode has the put's direction, into a buffer of 64 planes as a record has it, with and without checksum.
func BenchmarkMemoryEncode(b *testing.B) {
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		for _, c := range []Codec{Q8_0, Q4R, Raw} {
			benchMemory(b, c, dt, memoryPlanes*2/dt.GroupBytes(), func(r *memoryRig, run func(string, func(int))) {
				size := len(r.stored[0])
				var buffers [2][]byte // of each goroutine
				for g := range buffers {
					buffers[g] = make([]byte, 64*size)
				}
				dst := func(i int) []byte {
					buf := buffers[2*i/len(r.stored)]
					return buf[i%64*size:][:0:size]
				}
				run("unsummed", func(i int) {
					if _, _, err := Encode(dst(i), c, None, r.t, kv.Packed(0, benchRows, r.mem(r.rows, i)), 0); err != nil {
						b.Fatal(err)
					}
				})
				run("summed", func(i int) {
					if _, _, _, err := EncodeSummed(dst(i), c, None, r.t, kv.Packed(0, benchRows, r.mem(r.rows, i)), 0); err != nil {
						b.Fatal(err)
					}
				})
			})
		}
	}
}
