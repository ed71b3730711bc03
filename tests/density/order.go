package main

// tile is how many rows and columns are transposed at a time: their lines stay in the first cache.
const tile = 32

// transpose makes columns of rows: byte c of row r, of rows that lie one after the other in src, goes to byte r of row c of dst.
// Bytes of src behind the last whole row are copied.
func transpose(dst, src []byte, rows, columns int) {
	for r0 := 0; r0 < rows; r0 += tile {
		for c0 := 0; c0 < columns; c0 += tile {
			for r := r0; r < min(r0+tile, rows); r++ {
				row := src[r*columns:][:columns]
				for c := c0; c < min(c0+tile, columns); c++ {
					dst[c*rows+r] = row[c]
				}
			}
		}
	}
	copy(dst[rows*columns:], src[rows*columns:])
}
