package oplog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// What payloads are made of. All numbers are little-endian.
//
//	bytes, string  u32 length, bytes
//	list           u32 count, elements
//	bool           u8, 0 or 1
//	time           i64 seconds since 1970, u32 nanoseconds; the zero time is year 1
//	place          u64 segment, u64 offset, u64 length, u8 tier = 0

// ErrPayload is what is wrong with a payload that is none.
var ErrPayload = errors.New("malformed payload")

const placeBytes = 25

var le = binary.LittleEndian

func appendBytes[T ~string | ~[]byte](b []byte, x T) []byte {
	return append(le.AppendUint32(b, uint32(len(x))), x...)
}

func appendBool(b []byte, x bool) []byte {
	if x {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendTime(b []byte, t time.Time) []byte {
	return le.AppendUint32(le.AppendUint64(b, uint64(t.Unix())), uint32(t.Nanosecond()))
}

func appendPlace(b []byte, l loc.Loc) []byte {
	b = le.AppendUint64(b, l.Segment)
	b = le.AppendUint64(b, uint64(l.Offset))
	b = le.AppendUint64(b, uint64(l.Length))
	return append(b, l.Tier)
}

func appendList[T any](b []byte, all []T, one func([]byte, T) []byte) []byte {
	b = le.AppendUint32(b, uint32(len(all)))
	for _, x := range all {
		b = one(b, x)
	}
	return b
}

// reader reads a payload from its start. After the first error, everything that it gives is zero.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(err error, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", err, fmt.Sprintf(format, args...))
	}
}

// take returns the next n bytes, which are the payload's own; nil after an error.
func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail(ErrPayload, "%d bytes in its last %d", n, len(r.b))
	}
	if r.err != nil {
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

// i64 reads a number that is not negative.
func (r *reader) i64(what string) int64 {
	n := r.u64()
	if n > math.MaxInt64 {
		r.fail(ErrPayload, "%s %d", what, int64(n))
		return 0
	}
	return int64(n)
}

// length reads a u32 that fits into an int on every machine.
func (r *reader) length(what string) int {
	n := r.u32()
	if n > math.MaxInt32 {
		r.fail(ErrPayload, "%s %d", what, n)
		return 0
	}
	return int(n)
}

func (r *reader) id() (id [16]byte) {
	copy(id[:], r.take(16))
	return id
}

func (r *reader) bool(what string) bool {
	n := r.u8()
	if n > 1 {
		r.fail(ErrPayload, "%s is %d", what, n)
	}
	return n == 1
}

// shared reads bytes, which are the payload's own.
func (r *reader) shared() []byte { return r.take(uint64(r.u32())) }

// bytes reads bytes into memory of their own; nil for none.
func (r *reader) bytes() []byte { return append([]byte(nil), r.shared()...) }

func (r *reader) string() string { return string(r.shared()) }

func (r *reader) time() time.Time {
	sec, nano := int64(r.u64()), r.u32()
	if nano >= 1e9 {
		r.fail(ErrPayload, "%d nanoseconds", nano)
		nano = 0
	}
	return time.Unix(sec, int64(nano)).UTC()
}

func (r *reader) place() loc.Loc {
	if b := r.take(placeBytes); b != nil {
		return r.placeIn(b)
	}
	return loc.Loc{}
}

// placeIn is the place at the start of b, which has been taken.
func (r *reader) placeIn(b []byte) loc.Loc {
	l := loc.Loc{Segment: le.Uint64(b), Offset: int64(le.Uint64(b[8:])), Length: int64(le.Uint64(b[16:])), Tier: b[24]}
	if l.Offset < 0 || l.Length < 0 || l.Offset > math.MaxInt64-l.Length {
		r.fail(ErrPayload, "a record at [%d, +%d)", l.Offset, l.Length)
	}
	r.known("tier", uint64(l.Tier), 0)
	return l
}

// known refuses a value that only another release can have a meaning for.
func (r *reader) known(what string, found, only uint64) {
	if found != only {
		r.unknown(what, found, only)
	}
}

func (r *reader) unknown(what string, found, only uint64) {
	r.fail(vfs.ErrVersion, "%s %#x, this release knows %d", what, found, only)
}

// readList reads a list whose elements take at least so many bytes each; nil for none.
func readList[T any](r *reader, least uint64, one func(*reader) T) []T {
	n := uint64(r.u32())
	if n*least > uint64(len(r.b)) {
		r.fail(ErrPayload, "%d elements in its last %d bytes", n, len(r.b))
	}
	if r.err != nil || n == 0 {
		return nil
	}
	out := make([]T, 0, n)
	for i := uint64(0); i < n && r.err == nil; i++ {
		out = append(out, one(r))
	}
	return out
}
