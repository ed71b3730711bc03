package hashed

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/dormousekv/dormouse/kv"
)

// Row is what a token leaves in the cache: a hash of all that it depends on.
type Row [16]byte

// Seen is a row at its position.
type Seen struct {
	Pos int
	Row Row
}

// Next is the row of a token at a position that sees rows, which are in order of position. The runtime's window, if it has one, is applied.
func (o Options) Next(token kv.Token, pos int, visible []Seen) Row {
	buf := make([]byte, 0, 64+24*len(visible))
	buf = append(buf, o.Weights...)
	buf = append(buf, 0)
	buf = binary.LittleEndian.AppendUint32(buf, uint32(token))
	buf = binary.LittleEndian.AppendUint64(buf, uint64(pos))
	for _, s := range visible {
		if o.Window > 0 && pos-s.Pos >= o.Window {
			continue
		}
		buf = binary.LittleEndian.AppendUint64(buf, uint64(s.Pos))
		buf = append(buf, s.Row[:]...)
	}
	sum := sha256.Sum256(buf)
	return Row(sum[:16])
}

// Logits are the scores after a token with this row: as many as the vocabulary has, from 0 to 16.
func (o Options) Logits(r Row) []float32 {
	out := make([]float32, o.filled().Vocabulary)
	a, b := binary.LittleEndian.Uint64(r[:]), binary.LittleEndian.Uint64(r[8:])
	for i := range out {
		a += 0x9e3779b97f4a7c15 // splitmix64
		z := a ^ b
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		out[i] = float32((z^z>>31)>>40) / (1 << 20)
	}
	return out
}

// Entry is a token of a list: where it was decoded, and which of the entries before it it saw, by their indexes. It sees itself always.
type Entry struct {
	Token   kv.Token
	Pos     int
	Visible []kv.Range // ascending; the positions of what they name ascend, too
}

// Expect returns the row of each entry; [Options.Logits] of one are the scores after it.
func (o Options) Expect(list []Entry) []Row {
	rows := make([]Row, len(list))
	var visible []Seen
	for i, e := range list {
		visible = visible[:0]
		for _, r := range e.Visible {
			for j := r.Start; j < r.End; j++ {
				visible = append(visible, Seen{list[j].Pos, rows[j]})
			}
		}
		rows[i] = o.Next(e.Token, e.Pos, visible)
	}
	return rows
}
