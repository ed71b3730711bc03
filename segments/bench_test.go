package segments

import (
	"testing"
)

const benchPlane = 64 << 10

// BenchmarkAppend builds and writes records of 16 planes, a MiB together; the reference is the copying and checksumming
// alone, without the write.
func BenchmarkAppend(b *testing.B) {
	sizes := make([]int, 16)
	for i := range sizes {
		sizes[i] = benchPlane
	}
	rec := makeBlock(1, 1, sizes...)
	d, fp := testModel(1)
	for _, write := range []bool{false, true} {
		b.Run(map[bool]string{false: "build", true: "append"}[write], func(b *testing.B) {
			o := options(b.TempDir())
			o.SegmentBytes, o.AllocateStep = 64<<20, 4<<20
			s := openSet(b, o)
			b.SetBytes(16 * benchPlane)
			for i := 0; b.Loop(); i++ {
				r := rec.build(b)
				if write {
					loc, err := s.Append(d, fp, r)
					if err != nil {
						b.Fatal(err)
					}
					if loc.Offset == 4096 && loc.Segment > 4 {
						s.Unlink(loc.Segment-2, false)
						if _, _, err := s.Reclaim(b.Context(), nil); err != nil {
							b.Fatal(err)
						}
					}
				}
				r.Release()
			}
			b.StopTimer()
			s.Abandon()
		})
	}
}

// BenchmarkRead finds a record of 16 planes in the map: header only, then with every plane's checksum; the reference is
// the copying of the planes.
func BenchmarkRead(b *testing.B) {
	sizes := make([]int, 16)
	for i := range sizes {
		sizes[i] = benchPlane
	}
	s := newSet(b)
	loc := makeBlock(1, 1, sizes...).append(b, s, 1)
	defer s.Abandon()
	dst := make([]byte, benchPlane)
	run := func(name string, planes func(*Record) error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Read(loc, planes); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("header", func(*Record) error { return nil })
	run("verify", func(r *Record) error {
		b.SetBytes(16 * benchPlane)
		return r.Verify()
	})
	run("copy", func(r *Record) error {
		for i := range r.Tensors() {
			copy(dst, r.Plane(i))
		}
		return nil
	})
}

func BenchmarkLease(b *testing.B) {
	s := newSet(b)
	b.ReportAllocs()
	for b.Loop() {
		s.Acquire().Release()
	}
}

func BenchmarkScan(b *testing.B) {
	o := options(b.TempDir())
	o.SegmentBytes = 16 << 20
	s := openSet(b, o)
	for i := range uint64(100) {
		makeBlock(1, i, 100<<10).append(b, s, 1)
	}
	defer s.Abandon()
	b.SetBytes(s.Segments()[0].End)
	for b.Loop() {
		n := 0
		if _, err := s.Scan(b.Context(), 1, 0, func(Loc, *Record) error { n++; return nil }, nil); err != nil || n != 100 {
			b.Fatal(n, err)
		}
	}
}
