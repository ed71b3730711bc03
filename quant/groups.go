package quant

import (
	"math/bits"
	"slices"
	"sort"

	"github.com/dormousekv/dormouse/kv"
)

// Both directions walk the caller's memory in runs: stretches of whole groups that lie one after the other. Packed
// memory is one run, rows with gaps are a run each, and rows whose elements are apart go through a pooled buffer of a
// few rows.

const (
	stagedRows  = 64 // a tile of copyElements
	stagedBytes = 256 << 10
	stagedGap   = 64 // behind each row: rows a power of 2 apart would share few places in the first cache

	summedBytes = 8 << 10 // how much is encoded before its checksum goes on, well within the first cache
)

// staging is how many rows of t go through the buffer at a time.
func staging(t kv.Tensor) int { return max(1, min(stagedRows, stagedBytes/t.RowBytes())) }

// encodeGroups appends the plane and says in p how many exceptions it has and the largest error of all other groups. It
// returns the plane's CRC32C if check asks for it.
func encodeGroups(dst []byte, t kv.Tensor, src kv.TensorRows, p *Plane, exactRows int, check bool) ([]byte, uint32) {
	l := layoutGroups(p.Codec, t, p.Rows, 0)
	codes, indexes := len(dst)+int(l.codes), len(dst)+int(l.indexes)
	e := groupEncoder{
		grouping: groupings[p.Codec],
		codec:    p.Codec,
		dtype:    t.DType,
		elements: int(l.elements),
		exact:    min(max(exactRows, 0), p.Rows) * int(l.perRow),
		code:     len(dst),
		dst:      slices.Grow(dst, indexes-len(dst))[:indexes],
		check:    check,
		summed:   len(dst),
	}
	clear(e.dst[codes:])
	for _, p := range src.Pieces {
		if p.Count > 0 {
			e.piece(t, p)
		}
	}
	n := (len(e.dst) - indexes) / 4
	p.Exceptions, p.MaxError = uint32(n), e.maxError
	if n == 0 {
		e.dst = e.dst[:codes]
	} else {
		e.originals(t, src, indexes, n)
	}
	e.checksum(len(e.dst))
	return e.dst, e.sum
}

// groupEncoder fills in codes and, behind them, appends the indexes of exceptions as it finds them.
type groupEncoder struct {
	grouping
	codec    Codec
	dtype    kv.DType
	elements int // bytes of a group in dtype
	exact    int // groups before this one are exceptions
	group    int // next group
	code     int // offset in dst of its block
	dst      []byte
	maxError float32

	check  bool
	summed int // offset in dst
	sum    uint32
}

// checksum goes on to that offset.
func (e *groupEncoder) checksum(end int) {
	if e.check {
		e.sum = updateSum(e.sum, e.dst[e.summed:end])
		e.summed = end
	}
}

func (e *groupEncoder) piece(t kv.Tensor, p kv.Piece) {
	row, _ := p.Strides(t)
	rowBytes := t.RowBytes()
	switch {
	case packed(p, t):
		e.run(p.Mem[:p.Count*rowBytes])
	case elementsPacked(p, t):
		for r := range p.Count {
			e.run(p.Mem[r*row:][:rowBytes])
		}
	default:
		step, pitch := min(staging(t), p.Count), rowBytes+stagedGap
		buf := getBuffer(step * pitch)
		for r := 0; r < p.Count; r += step {
			n := min(step, p.Count-r)
			gatherApart(buf.b, pitch, t, p, r, n)
			for i := range n {
				e.run(buf.b[i*pitch:][:rowBytes])
			}
		}
		buf.release()
	}
}

// run quantizes the next groups.
func (e *groupEncoder) run(mem []byte) {
	for len(mem) > 0 {
		n := min(len(mem)/e.elements, maskGroups)
		if e.group < e.exact {
			n = min(n, e.exact-e.group)
		}
		mask, maxError := e.quantize(mem[:n*e.elements], n*e.block)
		if e.group < e.exact {
			mask = ^uint64(0) >> (maskGroups - n)
		} else {
			e.maxError = maxError
		}
		for ; mask != 0; mask &= mask - 1 {
			e.dst = putIndex(e.dst, e.group+bits.TrailingZeros64(mask))
		}
		e.group += n
		e.code += n * e.block
		mem = mem[n*e.elements:]
		if e.code-e.summed >= summedBytes {
			e.checksum(e.code)
		}
	}
}

// quantize writes so many bytes of blocks. The checksum follows one call behind, when exceptions have been seen to.
func (e *groupEncoder) quantize(mem []byte, size int) (mask uint64, maxError float32) {
	blocks := e.dst[e.code : e.code+size]
	if e.codec == Q4R {
		return active.quantizeQ4R(e.dtype, blocks, mem, e.maxError)
	}
	if !e.check || e.code-e.summed < size {
		return active.quantize(e.dtype, blocks, mem, e.maxError)
	}
	mask, maxError, e.sum = active.quantizeSum(e.dtype, blocks, mem, e.maxError, e.dst[e.summed:e.summed+size], e.sum)
	e.summed += size
	return mask, maxError
}

// originals appends the elements of the n exceptions whose indexes are at that offset of dst.
func (e *groupEncoder) originals(t kv.Tensor, src kv.TensorRows, indexes, n int) {
	size := t.DType.GroupBytes()
	perRow := t.Width / e.values
	e.dst = slices.Grow(e.dst, n*e.elements)
	exc := exceptions{indexes: e.dst[indexes : indexes+4*n]}
	first, i := 0, 0 // row of the plane, exception
	for _, p := range src.Pieces {
		if p.Count == 0 {
			continue
		}
		for ; i < n && int(exc.at(i)) < (first+p.Count)*perRow; i++ {
			g := int(exc.at(i))
			row, value := g/perRow-first, g%perRow*e.values
			if elementsPacked(p, t) {
				e.dst = append(e.dst, p.Mem[p.At(t, row, value):][:e.elements]...)
				continue
			}
			for v := value; v < value+e.values; v++ {
				e.dst = append(e.dst, p.Mem[p.At(t, row, v):][:size]...)
			}
		}
		first += p.Count
	}
}

// decodeGroups returns the CRC32C of the plane if how asks for it.
func decodeGroups(dst kv.TensorRows, t kv.Tensor, p Plane, plane []byte, from int, how reading) (uint32, error) {
	codes, exc, err := parseGroups(t, p, plane)
	if err != nil {
		return 0, err
	}
	d := groupDecoder{grouping: groupings[p.Codec], codec: p.Codec, dtype: t.DType, exc: exc, how: how}
	d.elements = t.DType.RowBytes(d.values)
	d.group = from * (t.Width / d.values)
	d.codes = codes[d.group*d.block:]
	d.next = sort.Search(exc.len(), func(i int) bool { return exc.at(i) >= uint64(d.group) })
	if how.sum {
		d.sum = updateSum(0, codes[:d.group*d.block])
	}
	for _, p := range dst.Pieces {
		if p.Count > 0 {
			d.piece(t, p)
		}
	}
	if how.sum {
		d.sum = updateSum(d.sum, plane[len(codes)-len(d.codes):])
	}
	return d.sum, nil
}

// groupDecoder writes group after group, each exception over what its codes gave.
type groupDecoder struct {
	grouping
	codec    Codec
	dtype    kv.DType
	elements int // bytes of a group in dtype
	group    int // next group
	codes    []byte
	exc      exceptions
	next     int // first exception at or behind group
	how      reading
	sum      uint32 // of what is in front of codes
}

func (d *groupDecoder) piece(t kv.Tensor, p kv.Piece) {
	row, _ := p.Strides(t)
	rowBytes := t.RowBytes()
	switch {
	case packed(p, t):
		d.run(p.Mem[:p.Count*rowBytes], d.how.stream)
	case elementsPacked(p, t):
		for r := range p.Count {
			d.run(p.Mem[r*row:][:rowBytes], d.how.stream)
		}
	default:
		step, pitch := min(staging(t), p.Count), rowBytes+stagedGap
		buf := getBuffer(step * pitch)
		for r := 0; r < p.Count; r += step {
			n := min(step, p.Count-r)
			for i := range n {
				d.run(buf.b[i*pitch:][:rowBytes], false)
			}
			scatterApart(p, t, r, n, buf.b, pitch)
		}
		buf.release()
	}
}

// run fills mem with the next groups.
func (d *groupDecoder) run(mem []byte, stream bool) {
	n := len(mem) / d.elements
	codes := d.codes[:n*d.block]
	switch {
	case d.codec == Q4R && d.how.sum:
		d.sum = active.dequantizeSumQ4R(d.dtype, mem, codes, stream, d.sum)
	case d.codec == Q4R:
		active.dequantizeQ4R(d.dtype, mem, codes, stream)
	case d.how.sum:
		d.sum = active.dequantizeSum(d.dtype, mem, codes, stream, d.sum)
	default:
		active.dequantize(d.dtype, mem, codes, stream)
	}
	for ; d.next < d.exc.len() && d.exc.at(d.next) < uint64(d.group+n); d.next++ {
		at := (int(d.exc.at(d.next)) - d.group) * d.elements
		copy(mem[at:], d.exc.originals[d.next*d.elements:][:d.elements])
	}
	d.group += n
	d.codes = d.codes[n*d.block:]
}
