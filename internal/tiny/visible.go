package tiny

import "math/bits"

// Visible is what a sequence shows to attention: a bit for each position, and the row of the cache in which a position's K and V are.
// The positions may have holes, and rows lie in any order.
type Visible struct {
	bits []uint64
	rows []uint32 // by position; means nothing where the bit is clear
}

// NewVisible shows nothing, and has room for so many positions; it grows as needed.
func NewVisible(positions int) *Visible {
	return &Visible{make([]uint64, (positions+63)/64), make([]uint32, positions)}
}

// Set shows the row at the position.
func (v *Visible) Set(pos, row int) {
	for pos >= len(v.rows) {
		v.rows = append(v.rows, 0)
	}
	for pos/64 >= len(v.bits) {
		v.bits = append(v.bits, 0)
	}
	v.bits[pos/64] |= 1 << (pos % 64)
	v.rows[pos] = uint32(row)
}

// Clear hides the position.
func (v *Visible) Clear(pos int) {
	if pos/64 < len(v.bits) {
		v.bits[pos/64] &^= 1 << (pos % 64)
	}
}

// Row is the row at the position, if that is shown.
func (v *Visible) Row(pos int) (row int, shown bool) {
	if pos < 0 || pos/64 >= len(v.bits) || v.bits[pos/64]&(1<<(pos%64)) == 0 {
		return 0, false
	}
	return int(v.rows[pos]), true
}

// Next is the first position from pos on that is shown; -1 if there is none.
func (v *Visible) Next(pos int) int {
	for w := pos / 64; w < len(v.bits); w++ {
		word := v.bits[w]
		if w == pos/64 {
			word &= ^uint64(0) << (pos % 64)
		}
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}

// End is the position after the last one that is shown.
func (v *Visible) End() int {
	for w := len(v.bits) - 1; w >= 0; w-- {
		if v.bits[w] != 0 {
			return w*64 + bits.Len64(v.bits[w])
		}
	}
	return 0
}

// Count is how many positions are shown.
func (v *Visible) Count() int { return v.count(len(v.bits) * 64) }

// count is how many positions before end are shown.
func (v *Visible) count(end int) int {
	n := 0
	for w := range min((end+63)/64, len(v.bits)) {
		word := v.bits[w]
		if w == end/64 {
			word &= 1<<(end%64) - 1
		}
		n += bits.OnesCount64(word)
	}
	return n
}

// before are the rows of the positions before end, in order of position.
func (v *Visible) before(end int) []uint32 {
	rows := make([]uint32, 0, v.count(end))
	for pos := v.Next(0); pos >= 0 && pos < end; pos = v.Next(pos + 1) {
		rows = append(rows, v.rows[pos])
	}
	return rows
}
