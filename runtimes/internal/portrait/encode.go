package portrait

import (
	"encoding/binary"
	"math"
)

// Append encodes s: u16 stride, planes and projections, then for each plane its length and its projections as f32, little-endian. Of no planes,
// nothing.
func (s Portrait) Append(b []byte) []byte {
	if len(s.planes) == 0 {
		return b
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(s.stride))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s.planes)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s.planes[0].projections)))
	for _, p := range s.planes {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(p.norm))
		for _, x := range p.projections {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	}
	return b
}

// Decode reads what Append wrote.
func Decode(b []byte) (s Portrait, ok bool) {
	if len(b) < 6 {
		return s, false
	}
	s.stride = int(binary.LittleEndian.Uint16(b))
	n, m := int(binary.LittleEndian.Uint16(b[2:])), int(binary.LittleEndian.Uint16(b[4:]))
	if b = b[6:]; n == 0 || m == 0 || len(b) != 4*n*(1+m) {
		return s, false
	}
	next := func() (x float32) {
		x = math.Float32frombits(binary.LittleEndian.Uint32(b))
		b = b[4:]
		return x
	}
	for range n {
		p := Plane{norm: next()}
		for range m {
			p.projections = append(p.projections, next())
		}
		s.planes = append(s.planes, p)
	}
	return s, true
}
