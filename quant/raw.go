package quant

import (
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

func encodeRaw(dst []byte, t kv.Tensor, src kv.TensorRows) []byte {
	if t.Width == 0 {
		mem, _ := stateMem(src)
		return append(dst, mem...)
	}
	start, size := len(dst), src.Count()*t.RowBytes()
	dst = slices.Grow(dst, size)[:start+size]
	gatherRows(dst[start:], t, src)
	return dst
}

func decodeRaw(dst kv.TensorRows, t kv.Tensor, p Plane, plane []byte, from int) error {
	if t.Width == 0 {
		mem, ok := stateMem(dst)
		if ok && len(mem) != len(plane) {
			return stateError(t, len(plane), len(mem))
		}
		copy(mem, plane)
		return nil
	}
	row := t.RowBytes()
	if want := uint64(p.Rows) * uint64(row); want != uint64(len(plane)) {
		return damage.New("", 0, fmt.Sprintf("raw plane of %d rows", p.Rows), bytesOf(want), bytesOf(uint64(len(plane))))
	}
	scatterRows(dst, t, plane[from*row:])
	return nil
}

// stateMem is the memory of a state whose length varies; false if dst asks for no row.
func stateMem(rows kv.TensorRows) ([]byte, bool) {
	for _, p := range rows.Pieces {
		if p.Count > 0 {
			return p.Mem, true
		}
	}
	return nil, false
}

// wholePlane is the memory of dst if it takes a Raw plane as it is: all rows, packed, or a state. A compressed plane is
// decompressed right there.
func wholePlane(dst kv.TensorRows, t kv.Tensor, p Plane) ([]byte, bool) {
	switch {
	case p.Codec != Raw:
		return nil, false
	case t.Width == 0:
		return stateMem(dst)
	case dst.Count() != p.Rows:
		return nil, false
	}
	mem := packedRows(dst, t)
	return mem, mem != nil
}

func stateError(t kv.Tensor, stored, mem int) error {
	return fmt.Errorf("%w: %s: the stored state has %d bytes, its memory has %d", kv.ErrRows, t, stored, mem)
}
