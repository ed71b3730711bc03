package quant

import (
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

// encodeRaw returns the CRC32C of what it appends if check asks for it.
func encodeRaw(dst []byte, t kv.Tensor, src kv.TensorRows, check bool) ([]byte, uint32) {
	size := src.Count() * t.RowBytes()
	if t.Width == 0 {
		mem, _ := stateMem(src)
		size = len(mem)
	}
	start := len(dst)
	dst = slices.Grow(dst, size)[:start+size]
	rest, sum := dst[start:], uint32(0)
	if t.Width == 0 {
		mem, _ := stateMem(src)
		return dst, keep(rest, mem, check, 0)
	}
	for _, p := range src.Pieces {
		if p.Count > 0 {
			n := p.Count * t.RowBytes()
			sum = packRaw(rest[:n], t, p, check, sum)
			rest = rest[n:]
		}
	}
	return dst, sum
}

// packRaw fills dst with the rows of p and goes on with their checksum.
func packRaw(dst []byte, t kv.Tensor, p kv.Piece, check bool, sum uint32) uint32 {
	row, _ := p.Strides(t)
	rowBytes := t.RowBytes()
	switch {
	case packed(p, t):
		sum = keep(dst, p.Mem[:len(dst)], check, sum)
	case elementsPacked(p, t):
		for r := range p.Count {
			sum = keep(dst[r*rowBytes:][:rowBytes], p.Mem[r*row:][:rowBytes], check, sum)
		}
	default:
		step := staging(t)
		for r := 0; r < p.Count; r += step {
			tile := dst[r*rowBytes:]
			tile = tile[:gather(tile, t, p, r, min(step, p.Count-r))]
			if check {
				sum = updateSum(sum, tile)
			}
		}
	}
	return sum
}

// keep copies src to dst and goes on with the checksum of dst: the caller may write to src meanwhile, and what is stored must be what
// was summed. So src is read once, and dst while it is in the first cache.
func keep(dst, src []byte, check bool, sum uint32) uint32 {
	if !check {
		copy(dst, src)
		return sum
	}
	for len(dst) > 0 {
		n := min(summedBytes, len(dst))
		copy(dst[:n], src)
		sum = updateSum(sum, dst[:n])
		dst, src = dst[n:], src[n:]
	}
	return sum
}

// decodeRaw returns the CRC32C of the plane if how asks for it.
func decodeRaw(dst kv.TensorRows, t kv.Tensor, p Plane, plane []byte, from int, how reading) (sum uint32, err error) {
	if t.Width == 0 {
		mem, ok := stateMem(dst)
		if ok && len(mem) != len(plane) {
			return 0, stateError(t, len(plane), len(mem))
		}
		if !ok && how.sum {
			return updateSum(0, plane), nil
		}
		return how.copy(mem, plane[:len(mem)], 0), nil
	}
	row := t.RowBytes()
	if want := uint64(p.Rows) * uint64(row); want != uint64(len(plane)) {
		return 0, damage.New("", 0, fmt.Sprintf("raw plane of %d rows", p.Rows), bytesOf(want), bytesOf(uint64(len(plane))))
	}
	if how.sum {
		sum = updateSum(0, plane[:from*row])
	}
	rest := plane[from*row:]
	for _, p := range dst.Pieces {
		if p.Count > 0 {
			n := p.Count * row
			sum = rawPiece(p, t, rest[:n], how, sum)
			rest = rest[n:]
		}
	}
	if how.sum {
		sum = updateSum(sum, rest)
	}
	return sum, nil
}

// rawPiece fills p from packed rows and goes on with their checksum.
func rawPiece(p kv.Piece, t kv.Tensor, src []byte, how reading, sum uint32) uint32 {
	row, _ := p.Strides(t)
	rowBytes := t.RowBytes()
	switch {
	case packed(p, t):
		sum = how.copy(p.Mem[:len(src)], src, sum)
	case elementsPacked(p, t):
		for r := range p.Count {
			sum = how.copy(p.Mem[r*row:][:rowBytes], src[r*rowBytes:][:rowBytes], sum)
		}
	case partsPacked(p, t):
		part := rowBytes / p.Heads
		for r := range p.Count {
			for h := range p.Heads {
				sum = how.copy(p.Mem[h*p.HeadStride+r*row:][:part], src[r*rowBytes+h*part:][:part], sum)
			}
		}
	default:
		step := staging(t)
		for r := 0; r < p.Count; r += step {
			n := min(step, p.Count-r)
			tile := src[r*rowBytes:][:n*rowBytes]
			if how.sum {
				sum = updateSum(sum, tile)
			}
			scatter(p, t, r, n, tile)
		}
	}
	return sum
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

func stateError(t kv.Tensor, stored, mem int) error {
	return fmt.Errorf("%w: %s: the stored state has %d bytes, its memory has %d", kv.ErrRows, t, stored, mem)
}
