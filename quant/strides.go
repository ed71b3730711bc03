package quant

import (
	"encoding/binary"

	"github.com/dormousekv/dormouse/kv"
)

// Between a caller's rows, whatever their strides, and packed rows. Rows and pieces have been validated.

// elementsPacked reports whether the elements of a row lie one after the other.
func elementsPacked(p kv.Piece, t kv.Tensor) bool {
	if p.Heads > 1 {
		return false
	}
	_, elem := p.Strides(t)
	return elem == t.DType.GroupBytes() || t.Width == t.DType.Group()
}

// partsPacked reports whether the elements of a row lie one after the other in each of its heads.
func partsPacked(p kv.Piece, t kv.Tensor) bool {
	_, elem := p.Strides(t)
	return p.Heads > 1 && elem == t.DType.GroupBytes()
}

// packed reports whether the piece is one stretch of memory.
func packed(p kv.Piece, t kv.Tensor) bool {
	row, _ := p.Strides(t)
	return elementsPacked(p, t) && (row == t.RowBytes() || p.Count == 1)
}

// packedRows is the memory of rows that lie in one stretch, or nil.
func packedRows(rows kv.TensorRows, t kv.Tensor) []byte {
	if len(rows.Pieces) != 1 || rows.Pieces[0].Count == 0 || !packed(rows.Pieces[0], t) {
		return nil
	}
	p := rows.Pieces[0]
	return p.Mem[:p.Count*t.RowBytes()]
}

// gatherRows copies all of src to dst, packed.
func gatherRows(dst []byte, t kv.Tensor, src kv.TensorRows) {
	for _, p := range src.Pieces {
		if p.Count > 0 {
			dst = dst[gather(dst, t, p, 0, p.Count):]
		}
	}
}

// scatterRows fills dst from packed rows.
func scatterRows(dst kv.TensorRows, t kv.Tensor, src []byte) {
	for _, p := range dst.Pieces {
		if p.Count > 0 {
			src = src[scatter(p, t, 0, p.Count, src):]
		}
	}
}

// gather copies n rows of p, from row first, to dst, packed. It returns their size.
func gather(dst []byte, t kv.Tensor, p kv.Piece, first, n int) int {
	row, _ := p.Strides(t)
	rowBytes := t.RowBytes()
	mem := p.Mem[first*row:]
	switch {
	case packed(p, t):
		copy(dst[:n*rowBytes], mem)
	case elementsPacked(p, t):
		for r := range n {
			copy(dst[r*rowBytes:(r+1)*rowBytes], mem[r*row:])
		}
	default:
		gatherApart(dst, rowBytes, t, p, first, n)
	}
	return n * rowBytes
}

// gatherApart is gather for rows that are not in one stretch each, into rows that are pitch bytes apart.
func gatherApart(dst []byte, pitch int, t kv.Tensor, p kv.Piece, first, n int) {
	row, elem := p.Strides(t)
	size, heads := t.DType.GroupBytes(), max(p.Heads, 1)
	part := t.RowBytes() / heads
	for h := range heads {
		to, from := dst[h*part:], p.Mem[h*p.HeadStride+first*row:]
		if elem != size {
			copyElements(to, pitch, size, from, row, elem, n, t.Width/heads, size)
			continue
		}
		for r := range n {
			copy(to[r*pitch:][:part], from[r*row:])
		}
	}
}

// scatterApart is its opposite.
func scatterApart(p kv.Piece, t kv.Tensor, first, n int, src []byte, pitch int) {
	row, elem := p.Strides(t)
	size, heads := t.DType.GroupBytes(), max(p.Heads, 1)
	part := t.RowBytes() / heads
	for h := range heads {
		to, from := p.Mem[h*p.HeadStride+first*row:], src[h*part:]
		if elem != size {
			copyElements(to, row, elem, from, pitch, size, n, t.Width/heads, size)
			continue
		}
		for r := range n {
			copy(to[r*row:][:part], from[r*pitch:])
		}
	}
}

// scatter fills n rows of p, from row first, with packed rows. It returns their size.
func scatter(p kv.Piece, t kv.Tensor, first, n int, src []byte) int {
	row, _ := p.Strides(t)
	rowBytes := t.RowBytes()
	mem := p.Mem[first*row:]
	switch {
	case packed(p, t):
		copy(mem, src[:n*rowBytes])
	case elementsPacked(p, t):
		for r := range n {
			copy(mem[r*row:], src[r*rowBytes:(r+1)*rowBytes])
		}
	default:
		scatterApart(p, t, first, n, src, rowBytes)
	}
	return n * rowBytes
}

// copyElements copies rows x elems elements of 1, 2 or 4 bytes between two layouts.
func copyElements(dst []byte, dstRow, dstElem int, src []byte, srcRow, srcElem int, rows, elems, size int) {
	done := 0
	switch {
	case srcElem == size && dstRow == size: // channel-major memory is filled: 8 channels at a time, along their positions
		for ; done+8 <= elems && rows >= 8; done += 8 {
			if !active.transpose(size, dst[done*dstElem:], src[done*size:], dstElem, srcRow, 8*size, 8*srcRow, rows/8) {
				break
			}
		}
	case dstElem == size && srcRow == size: // it is read
		for ; done+8 <= elems && rows >= 8; done += 8 {
			if !active.transpose(size, dst[done*size:], src[done*srcElem:], dstRow, srcElem, 8*dstRow, 8*size, rows/8) {
				break
			}
		}
	}
	if rest := rows % 8; done > 0 && rest > 0 {
		r := rows - rest
		copyTiles(dst[r*dstRow:], dstRow, dstElem, src[r*srcRow:], srcRow, srcElem, rest, done, size)
	}
	if done < elems {
		copyTiles(dst[done*dstElem:], dstRow, dstElem, src[done*srcElem:], srcRow, srcElem, rows, elems-done, size)
	}
}

// copyTiles is copyElements one by one. It goes tile by tile, so that a transposition touches few cache lines at a time
// on either side.
func copyTiles(dst []byte, dstRow, dstElem int, src []byte, srcRow, srcElem int, rows, elems, size int) {
	const tileRows, tileElems = 64, 32
	for r0 := 0; r0 < rows; r0 += tileRows {
		r1 := min(r0+tileRows, rows)
		for e0 := 0; e0 < elems; e0 += tileElems {
			for e := e0; e < min(e0+tileElems, elems); e++ {
				d, s := r0*dstRow+e*dstElem, r0*srcRow+e*srcElem
				switch size {
				case 1:
					for r := r0; r < r1; r++ {
						dst[d] = src[s]
						d, s = d+dstRow, s+srcRow
					}
				case 2:
					for r := r0; r < r1; r++ {
						binary.LittleEndian.PutUint16(dst[d:], binary.LittleEndian.Uint16(src[s:]))
						d, s = d+dstRow, s+srcRow
					}
				case 4:
					for r := r0; r < r1; r++ {
						binary.LittleEndian.PutUint32(dst[d:], binary.LittleEndian.Uint32(src[s:]))
						d, s = d+dstRow, s+srcRow
					}
				}
			}
		}
	}
}
