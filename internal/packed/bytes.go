package packed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// All numbers are little-endian.
//
//	bytes, string  u32 length, bytes
//	list           u32 count, elements
//	bool           u8, 0 or 1

// ErrMalformed is what is wrong with bytes that no release wrote.
var ErrMalformed = errors.New("malformed bytes")

var le = binary.LittleEndian

// AppendBytes appends bytes or a string.
func AppendBytes[T ~string | ~[]byte](b []byte, x T) []byte {
	return append(le.AppendUint32(b, uint32(len(x))), x...)
}

// AppendBool appends a bool.
func AppendBool(b []byte, x bool) []byte {
	if x {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendList appends a list, whose elements one appends.
func AppendList[T any](b []byte, all []T, one func([]byte, T) []byte) []byte {
	b = le.AppendUint32(b, uint32(len(all)))
	for _, x := range all {
		b = one(b, x)
	}
	return b
}

// Reader reads bytes from their start. After the first error, everything that it gives is zero.
type Reader struct {
	b   []byte
	err error
}

// NewReader reads b.
func NewReader(b []byte) Reader { return Reader{b: b} }

// Fail says what is wrong, unless something was before.
func (r *Reader) Fail(err error, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", err, fmt.Sprintf(format, args...))
	}
}

// End returns the first error; bytes that were not read are one.
func (r *Reader) End() error {
	if len(r.b) > 0 {
		r.Fail(ErrMalformed, "%d bytes behind its end", len(r.b))
	}
	return r.err
}

// Take returns the next n bytes, which are shared with what is read; nil after an error.
func (r *Reader) Take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.Fail(ErrMalformed, "%d bytes in its last %d", n, len(r.b))
	}
	if r.err != nil {
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *Reader) U8() uint8 {
	if b := r.Take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *Reader) U32() uint32 {
	if b := r.Take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *Reader) U64() uint64 {
	if b := r.Take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

// Length reads a u32 that fits into an int on every machine.
func (r *Reader) Length(what string) int {
	n := r.U32()
	if n > math.MaxInt32 {
		r.Fail(ErrMalformed, "%s %d", what, n)
		return 0
	}
	return int(n)
}

func (r *Reader) ID() (id [16]byte) {
	copy(id[:], r.Take(16))
	return id
}

func (r *Reader) Bool(what string) bool {
	n := r.U8()
	if n > 1 {
		r.Fail(ErrMalformed, "%s is %d", what, n)
	}
	return n == 1
}

// Shared reads bytes, which are shared with what is read.
func (r *Reader) Shared() []byte { return r.Take(uint64(r.U32())) }

// Bytes reads bytes into memory of their own; nil for none.
func (r *Reader) Bytes() []byte { return append([]byte(nil), r.Shared()...) }

func (r *Reader) Text() string { return string(r.Shared()) }

// List reads a list whose elements take at least so many bytes each; nil for none. one reads an element.
func List[T any](r *Reader, least uint64, one func() T) []T {
	n := uint64(r.U32())
	if n*least > uint64(len(r.b)) {
		r.Fail(ErrMalformed, "%d elements in its last %d bytes", n, len(r.b))
	}
	if r.err != nil || n == 0 {
		return nil
	}
	out := make([]T, 0, n)
	for i := uint64(0); i < n && r.err == nil; i++ {
		out = append(out, one())
	}
	return out
}
