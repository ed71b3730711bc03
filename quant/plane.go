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
	Exceptions  uint32  // groups that are kept exactly beside the codes; only with [Q8_0] and [Q4R]
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
	if err := p.Compression.Check(); err != nil {
		return err
	}
	switch {
	case p.Rows < 0 || p.Rows > MaxRows:
		return damage.New("", 0, "plane's number of rows", fmt.Sprintf("at most %d", MaxRows), p.Rows)
	case t.Width == 0 && p.Rows != 1:
		return damage.New("", 0, "number of rows of a state", 1, p.Rows)
	case p.Exceptions > 0 && !p.Codec.inGroups():
		return damage.New("", 0, "number of exceptions of a "+p.Codec.String()+" plane", 0, p.Exceptions)
	case p.Codec.inGroups() && uint64(p.Exceptions) > layoutGroups(p.Codec, t, p.Rows, 0).groups:
		expected := fmt.Sprintf("at most %d", layoutGroups(p.Codec, t, p.Rows, 0).groups)
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
// values takes, with the first exactRows rows kept exactly. A [Q8_0] or [Q4R] plane with more exceptions than that is
// larger.
// 0 if c cannot hold t, or for a state whose length varies.
func MaxEncodedBytes(c Codec, t kv.Tensor, rows, exactRows int) int {
	p := Plane{Codec: c, Rows: rows}
	if c.inGroups() && c.Supports(t) && rows >= 0 && rows <= MaxRows {
		exact := layoutGroups(c, t, min(max(exactRows, 0), rows), 0).groups
		p.Exceptions = uint32(min(exact, math.MaxUint32))
	}
	if p.check(t) != nil || t.Width == 0 {
		return 0
	}
	_, hi := plainBounds(p, t)
	return int(min(hi, math.MaxInt))
}

// Encode appends the rows of src as one plane to dst, and returns the longer slice and what was written. With [Q8_0]
// and [Q4R] the first exactRows rows, and every group that the codes cannot hold, are kept exactly as well. comp is applied if it
// makes the plane at least 5 % smaller, else the plane's Compression is [None].
//
// src is read during the call only. The error wraps [ErrCodec] or [kv.ErrRows]; dst is then returned as it was.
func Encode(dst []byte, c Codec, comp Compression, t kv.Tensor, src kv.TensorRows, exactRows int) ([]byte, Plane, error) {
	if err := checkEncode(c, comp, t, src); err != nil {
		return dst, Plane{}, err
	}
	dst, p, _ := encode(dst, c, comp, t, src, exactRows, false)
	return dst, p, nil
}

// EncodeSummed is [Encode] that also returns the CRC32C of what it appended, computed while those bytes are still in a
// cache.
func EncodeSummed(dst []byte, c Codec, comp Compression, t kv.Tensor, src kv.TensorRows, exactRows int) ([]byte, Plane, uint32, error) {
	if err := checkEncode(c, comp, t, src); err != nil {
		return dst, Plane{}, 0, err
	}
	dst, p, sum := encode(dst, c, comp, t, src, exactRows, true)
	return dst, p, sum, nil
}

// checkEncode returns the error that says why the rows cannot become a plane, or nil.
func checkEncode(c Codec, comp Compression, t kv.Tensor, src kv.TensorRows) error {
	if err := c.check(t); err != nil {
		return err
	}
	if err := comp.Check(); err != nil {
		return err
	}
	if err := src.Validate(t); err != nil {
		return err
	}
	rows := src.Count()
	switch {
	case rows > MaxRows:
		return fmt.Errorf("%w: %s: %d rows in one plane, at most %d", kv.ErrRows, t, rows, MaxRows)
	case t.Width == 0 && rows != 1:
		return fmt.Errorf("%w: %s: a state is one row, not %d", kv.ErrRows, t, rows)
	case c.inGroups() && layoutGroups(c, t, rows, 0).groups > math.MaxUint32:
		return fmt.Errorf("%w: %s: %d rows of %d values are too many for one plane", kv.ErrRows, t, rows, t.Width)
	}
	return nil
}

func encode(dst []byte, c Codec, comp Compression, t kv.Tensor, src kv.TensorRows, exactRows int, check bool) ([]byte, Plane, uint32) {
	p := Plane{Codec: c, Compression: None, Rows: src.Count()}
	start, sum := len(dst), uint32(0)
	late := check && (comp != None || c == ByteSplit) // what is stored is known at the end only
	check = check && !late
	switch c {
	case Raw:
		dst, sum = encodeRaw(dst, t, src, check)
	case Q8_0, Q4R:
		dst, sum = encodeGroups(dst, t, src, &p, exactRows, check)
	case ByteSplit:
		dst = encodeByteSplit(dst, t, src, p.Rows)
	}
	if comp != None {
		dst, p.Compression = compressTail(dst, start, comp)
	}
	if late {
		sum = updateSum(0, dst[start:])
	}
	return dst, p, sum
}

// Decode writes the rows from, from+1, … of the plane, as many as dst has, into dst. stored is the whole plane; of an
// uncompressed [Raw], [Q8_0] or [Q4R] plane only what the rows need is read. A state whose length varies must be given memory
// of exactly [StateBytes].
//
// The error wraps [kv.ErrRows] if dst does not fit, [ErrCodec], or damage.ErrCorrupt, with an offset in the plane and
// no file. After an error dst may hold anything.
func Decode(dst kv.TensorRows, t kv.Tensor, p Plane, stored []byte, from int) error {
	if err := checkDecode(dst, t, p, from); err != nil {
		return err
	}
	_, err := decode(dst, t, p, stored, from, reading{})
	return err
}

// checkDecode returns the error that says why the rows cannot be those of p from row from on, or nil.
func checkDecode(dst kv.TensorRows, t kv.Tensor, p Plane, from int) error {
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
	return nil
}

// decode has checked arguments. It returns the CRC32C of stored if how asks for it.
func decode(dst kv.TensorRows, t kv.Tensor, p Plane, stored []byte, from int, how reading) (sum uint32, err error) {
	if p.Compression == None {
		return decodePlain(dst, t, p, stored, from, how)
	}
	if how.sum {
		sum = updateSum(0, stored)
		how.sum = false
	}
	lo, hi := plainBounds(p, t)
	length, stream, err := parseCompressed(stored, lo, hi)
	if err != nil {
		return sum, err
	}
	if err := checkStream(p.Compression, stream, length); err != nil || dst.Count() == 0 {
		return sum, err
	}
	if mem, ok := stateMem(dst); ok && t.Width == 0 && len(mem) != length {
		return sum, stateError(t, length, len(mem))
	}
	buf := getBuffer(length) // and not the caller's memory, which may fault, too: see decompress
	defer buf.release()
	if err := decompress(buf.b, p.Compression, stream); err != nil {
		return sum, err
	}
	_, err = decodePlain(dst, t, p, buf.b, from, how)
	return sum, err
}

func decodePlain(dst kv.TensorRows, t kv.Tensor, p Plane, plane []byte, from int, how reading) (sum uint32, err error) {
	if how.stream {
		defer active.fence()
	}
	switch p.Codec {
	case Raw:
		return decodeRaw(dst, t, p, plane, from, how)
	case Q8_0, Q4R:
		return decodeGroups(dst, t, p, plane, from, how)
	}
	if how.sum {
		sum = updateSum(0, plane)
	}
	return sum, decodeByteSplit(dst, t, p, plane, from)
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
	codes, _, err := parseGroups(t, p, stored)
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
