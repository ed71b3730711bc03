package oplog

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/packed"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// What payloads are made of, beside numbers, strings and lists, which are those of package packed.
//
//	time           i64 seconds since 1970, u32 nanoseconds; the zero time is year 1
//	place          u64 segment, u64 offset, u64 length, u8 tier = 0

// ErrPayload is what is wrong with a payload that is none.
var ErrPayload = packed.ErrMalformed

const placeBytes = 25

var le = binary.LittleEndian

func appendTime(b []byte, t time.Time) []byte {
	return le.AppendUint32(le.AppendUint64(b, uint64(t.Unix())), uint32(t.Nanosecond()))
}

func appendPlace(b []byte, l loc.Loc) []byte {
	b = le.AppendUint64(b, l.Segment)
	b = le.AppendUint64(b, uint64(l.Offset))
	b = le.AppendUint64(b, uint64(l.Length))
	return append(b, l.Tier)
}

// reader reads a payload from its start.
type reader struct{ packed.Reader }

// i64 reads a number that is not negative.
func (r *reader) i64(what string) int64 {
	n := r.U64()
	if n > math.MaxInt64 {
		r.Fail(ErrPayload, "%s %d", what, int64(n))
		return 0
	}
	return int64(n)
}

func (r *reader) time() time.Time {
	sec, nano := int64(r.U64()), r.U32()
	if nano >= 1e9 {
		r.Fail(ErrPayload, "%d nanoseconds", nano)
		nano = 0
	}
	return time.Unix(sec, int64(nano)).UTC()
}

func (r *reader) place() loc.Loc {
	if b := r.Take(placeBytes); b != nil {
		return r.placeIn(b)
	}
	return loc.Loc{}
}

// placeIn is the place at the start of b, which has been taken.
func (r *reader) placeIn(b []byte) loc.Loc {
	l := loc.Loc{Segment: le.Uint64(b), Offset: int64(le.Uint64(b[8:])), Length: int64(le.Uint64(b[16:])), Tier: b[24]}
	if l.Offset < 0 || l.Length < 0 || l.Offset > math.MaxInt64-l.Length {
		r.Fail(ErrPayload, "a record at [%d, +%d)", l.Offset, l.Length)
	}
	r.known("tier", uint64(l.Tier), 0)
	return l
}

// known refuses a value that only another release can have a meaning for.
func (r *reader) known(what string, found, only uint64) {
	if found != only {
		r.Fail(vfs.ErrVersion, "%s %#x, this release knows %d", what, found, only)
	}
}

// knownFlags refuses flags that an entry of the index does not have.
func (r *reader) knownFlags(f uint8) {
	r.known("flags", uint64(f&^(index.FlagDamaged|index.FlagPartial|index.FlagScopeRoot)), 0)
}
