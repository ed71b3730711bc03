package quant

import (
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

// Plane says what the stored bytes of some rows of one tensor are. It is kept beside them; they don't repeat it.
type Plane struct {
	Codec       Codec
	Compression Compression
	Rows        int
	Exceptions  uint32  // groups that are kept exactly beside the codes; only with [Q8_0]
	MaxError    float32 // largest |decoded - original| of the values that are not in an exception; 0 for exact codecs
}

func (p Plane) String() string {
	return fmt.Sprintf("%s/%s, %d rows, %d exceptions, max error %g", p.Codec, p.Compression, p.Rows, p.Exceptions, p.MaxError)
}

// check returns the error that says why p cannot be a plane of t, or nil.
func (p Plane) check(t kv.Tensor) error {
	if err := p.Codec.check(t); err != nil {
		return err
	}
	if err := p.Compression.check(); err != nil {
		return err
	}
	switch {
	case p.Rows < 0 || p.Rows > MaxRows:
		return damage.New("", 0, "plane's number of rows", fmt.Sprintf("at most %d", MaxRows), p.Rows)
	case t.Width == 0 && p.Rows != 1:
		return damage.New("", 0, "number of rows of a state", 1, p.Rows)
	case p.Exceptions > 0 && p.Codec != Q8_0:
		return damage.New("", 0, "number of exceptions of a "+p.Codec.String()+" plane", 0, p.Exceptions)
	case p.Codec == Q8_0 && uint64(p.Exceptions) > layoutQ8(t, p.Rows, 0).groups:
		expected := fmt.Sprintf("at most %d", layoutQ8(t, p.Rows, 0).groups)
		return damage.New("", 0, "plane's number of exceptions", expected, p.Exceptions)
	}
	return nil
}

// PlaneBytes returns the least and the most stored bytes that p can have. The error is the one that [Decode] would
// return for such a p.
func PlaneBytes(p Plane, t kv.Tensor) (lo, hi uint64, err error) {
	if err := p.check(t); err != nil {
		return 0, 0, err
	}
	lo, hi = plainBounds(p, t)
	if p.Compression != None {
		lo, hi = compressedHeaderBytes+1, hi-(hi+19)/20
	}
	return lo, hi, nil
}

// MaxEncodedBytes is the size of a buffer in which [Encode] does not have to grow: the most that a plane of ordinary
// values takes, with the first exactRows rows kept exactly. A [Q8_0] plane with more exceptions than that is larger.
// 0 if c cannot hold t, or for a state whose length varies.
func MaxEncodedBytes(c Codec, t kv.Tensor, rows, exactRows int) int {
	p := Plane{Codec: c, Rows: rows}
	if c == Q8_0 && c.Supports(t) && rows >= 0 && rows <= MaxRows {
		exact := layoutQ8(t, min(max(exactRows, 0), rows), 0).groups
		p.Exceptions = uint32(min(exact, math.MaxUint32))
	}
	if p.check(t) != nil || t.Width == 0 {
		return 0
	}
	_, hi := plainBounds(p, t)
	return int(min(hi, math.MaxInt))
}

// Encode appends the rows of src as one plane to dst, and returns the longer slice and what was written. With [Q8_0]
// the first exactRows rows, and every group that int8 cannot hold, are kept exactly as well. comp is applied if it
// makes the plane at least 5 % smaller, else the plane's Compression is [None].
//
// src is read during the call only. The error wraps [ErrCodec] or [kv.ErrRows]; dst is then returned as it was.
func Encode(dst []byte, c Codec, comp Compression, t kv.Tensor, src kv.TensorRows, exactRows int) ([]byte, Plane, error) {
	p := Plane{Codec: c, Compression: comp, Rows: src.Count()}
	if err := c.check(t); err != nil {
		return dst, Plane{}, err
	}
	if err := comp.check(); err != nil {
		return dst, Plane{}, err
	}
	if err := src.Validate(t); err != nil {
		return dst, Plane{}, err
	}
	switch {
	case p.Rows > MaxRows:
		return dst, Plane{}, fmt.Errorf("%w: %s: %d rows in one plane, at most %d", kv.ErrRows, t, p.Rows, MaxRows)
	case t.Width == 0 && p.Rows != 1:
		return dst, Plane{}, fmt.Errorf("%w: %s: a state is one row, not %d", kv.ErrRows, t, p.Rows)
	case c == Q8_0 && layoutQ8(t, p.Rows, 0).groups > math.MaxUint32:
		return dst, Plane{}, fmt.Errorf("%w: %s: %d rows of %d values are too many for one plane", kv.ErrRows, t, p.Rows, t.Width)
	}
	start := len(dst)
	switch c {
	case Raw:
		dst = encodeRaw(dst, t, src)
	case Q8_0:
		dst, p.Exceptions, p.MaxError = encodeQ8(dst, t, src, p.Rows, exactRows)
	case ByteSplit:
		dst = encodeByteSplit(dst, t, src, p.Rows)
	}
	if comp != None {
		dst, p.Compression = compressTail(dst, start, comp)
	}
	return dst, p, nil
}

// Decode writes the rows from, from+1, … of the plane, as many as dst has, into dst. stored is the whole plane; of an
// uncompressed [Raw] or [Q8_0] plane only what the rows need is read. A state whose length varies must be given memory
// of exactly [StateBytes].
//
// The error wraps [kv.ErrRows] if dst does not fit, [ErrCodec], or damage.ErrCorrupt, with an offset in the plane and
// no file. After an error dst may hold anything.
func Decode(dst kv.TensorRows, t kv.Tensor, p Plane, stored []byte, from int) error {
	if err := p.check(t); err != nil {
		return err
	}
	if err := dst.Validate(t); err != nil {
		return err
	}
	n := dst.Count()
	if from < 0 || n < 0 || from > p.Rows || n > p.Rows-from {
		return fmt.Errorf("%w: %s: %d rows from row %d of a plane that has %d", kv.ErrRows, t, n, from, p.Rows)
	}
	if p.Compression == None {
		return decodePlain(dst, t, p, stored, from)
	}
	lo, hi := plainBounds(p, t)
	length, stream, err := parseCompressed(stored, lo, hi)
	if err != nil {
		return err
	}
	if err := checkStream(p.Compression, stream, length); err != nil || n == 0 {
		return err
	}
	if mem, ok := wholePlane(dst, t, p); ok {
		if len(mem) != length {
			return stateError(t, length, len(mem))
		}
		return decompress(mem, p.Compression, stream)
	}
	buf := getBuffer(length)
	defer buf.release()
	if err := decompress(buf.b, p.Compression, stream); err != nil {
		return err
	}
	return decodePlain(dst, t, p, buf.b, from)
}

func decodePlain(dst kv.TensorRows, t kv.Tensor, p Plane, plane []byte, from int) error {
	switch p.Codec {
	case Raw:
		return decodeRaw(dst, t, p, plane, from)
	case Q8_0:
		return decodeQ8(dst, t, p, plane, from)
	}
	return decodeByteSplit(dst, t, p, plane, from)
}

// Codes returns the codes of an uncompressed [Q8_0] plane: an array of ggml's block_q8_0, row after row, in stored
// itself. A group that int8 cannot hold has a block there too: what ggml writes, or zeros if it has a NaN or an
// infinity. The error wraps [ErrCodec] for any other plane, or damage.ErrCorrupt.
func Codes(p Plane, t kv.Tensor, stored []byte) ([]byte, error) {
	if err := p.check(t); err != nil {
		return nil, err
	}
	if p.Codec != Q8_0 || p.Compression != None {
		return nil, fmt.Errorf("%w: a %s/%s plane has no codes to look at", ErrCodec, p.Codec, p.Compression)
	}
	codes, _, err := parseQ8(t, p, stored)
	return codes[:len(codes):len(codes)], err
}

// StateBytes is the length of the state in a plane of a tensor of width 0, as [Decode] needs it. The error wraps
// [ErrCodec] or damage.ErrCorrupt.
func StateBytes(p Plane, t kv.Tensor, stored []byte) (int64, error) {
	if err := p.check(t); err != nil {
		return 0, err
	}
	if t.Width != 0 {
		return int64(t.RowBytes()), nil
	}
	if p.Compression == None {
		return int64(len(stored)), nil
	}
	lo, hi := plainBounds(p, t)
	n, _, err := parseCompressed(stored, lo, hi)
	return int64(n), err
}
