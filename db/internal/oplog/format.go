package oplog

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// This file alone knows the payloads. docs/format/oplog.md says the same in words.

// Encode returns the payload of an operation's frame.
func Encode(op Op) []byte { return op.append(nil) }

// Decode reads the payload of a frame. The error is ErrPayload, or vfs.ErrVersion for what another release wrote. Of what it returns, only
// the descriptors of models share the payload.
func Decode(kind uint8, payload []byte) (Op, error) {
	r := &reader{b: payload}
	var op Op
	switch kind {
	case KindSnapshot:
		op = r.snapshot()
	case KindPut:
		op = Put{Records: readList(r, recordBytes, (*reader).record), Dead: r.dead()}
	case KindRemove:
		op = Remove{Deleted: r.bool("deleted"), Seq: r.u64(), Dead: r.dead(), Refs: readList(r, 4, (*reader).string)}
	case KindMove:
		op = Move{Key: r.id(), Group: r.u8(), From: r.place(), To: r.place(), Seq: r.u64()}
	case KindModel:
		op = r.model()
	case KindRetire:
		op = Retire{Model: r.id(), Segments: readList(r, 8, (*reader).u64)}
	case KindRef:
		op = r.ref()
	case KindUnref:
		op = Unref{Name: r.string()}
	case KindFlag:
		op = Flag{Key: r.id(), Group: r.u8(), Loc: r.place(), Flags: r.flags()}
	case KindNote:
		op = r.note()
	case KindBarrier:
		op = Barrier{LSN: r.u64()}
	default:
		return nil, fmt.Errorf("%w: kind %d, expected 1 to %d", vfs.ErrVersion, kind, lastKind)
	}
	if len(r.b) > 0 {
		r.fail(ErrPayload, "%d bytes behind its end", len(r.b))
	}
	if r.err != nil {
		return nil, r.err
	}
	return op, nil
}

// put = list of record | list of dead
func (op Put) append(b []byte) []byte {
	b = slices.Grow(b, 8+len(op.Records)*(recordBytes+256)+len(op.Dead)*deadBytes)
	b = appendList(b, op.Records, appendRecord)
	return appendList(b, op.Dead, appendDead)
}

// recordBytes is the length of a record without its hashes.
const recordBytes = 138

// A record; kind and runtime key are those of the record itself (docs/format/record.md), of which there is only one yet.
//
//	  0 │ key 16 │ parent 16 │ fingerprint 16 │ scope 16 │ runtime key 16 = 0 │
//	 80 │ place 25 │ u8 kind = 1 │ u8 group │ u8 flags │
//	108 │ u32 first │ u16 tokens │ u16 first row │ u16 rows │ u64 seq │ u64 created │
//	134 │ bytes hashes │
func appendRecord(b []byte, x Record) []byte {
	b = append(b, x.Key[:]...)
	b = append(b, x.Parent[:]...)
	b = append(b, x.Model[:]...)
	b = append(b, x.Scope[:]...)
	b = append(b, make([]byte, 16)...)
	b = appendPlace(b, x.Loc)
	b = append(b, kindChained, x.Group, x.Flags)
	b = le.AppendUint32(b, x.First)
	b = le.AppendUint16(b, x.Tokens)
	b = le.AppendUint16(b, x.RowFirst)
	b = le.AppendUint16(b, x.RowCount)
	b = le.AppendUint64(b, x.Seq)
	b = le.AppendUint64(b, uint64(x.Created))
	return appendBytes(b, x.Hashes)
}

// kindChained is segments.Chained.
const kindChained = 1

func (r *reader) record() Record {
	b := r.take(recordBytes - 4)
	if b == nil {
		return Record{}
	}
	x := Record{
		Key: kv.Key(b[0:16]), Parent: kv.Key(b[16:32]), Model: kv.Fingerprint(b[32:48]), Scope: kv.ScopeID(b[48:64]),
		Loc: r.placeIn(b[80:]), Group: b[106], Flags: b[107],
		First: le.Uint32(b[108:]), Tokens: le.Uint16(b[112:]), RowFirst: le.Uint16(b[114:]), RowCount: le.Uint16(b[116:]),
		Seq: le.Uint64(b[118:]), Created: int64(le.Uint64(b[126:])), Hashes: r.bytes(),
	}
	if [16]byte(b[64:80]) != [16]byte{} {
		r.fail(vfs.ErrVersion, "a runtime's own key")
	}
	r.known("record kind", uint64(b[105]), kindChained)
	r.known("flags", uint64(x.Flags&^knownFlags), 0)
	if x.Created < 0 {
		r.fail(ErrPayload, "created %d seconds before 1970", -x.Created)
	}
	if n := len(x.Hashes); n%kv.TokenHashBytes != 0 {
		r.fail(ErrPayload, "%d bytes of token hashes", n)
	}
	return x
}

// knownFlags are those of an entry of the index.
const knownFlags = index.FlagDamaged | index.FlagPartial | index.FlagScopeRoot

func (r *reader) flags() uint8 {
	f := r.u8()
	r.known("flags", uint64(f&^knownFlags), 0)
	return f
}

const deadBytes = 17 + placeBytes

// dead = key 16 | u8 group | place
func appendDead(b []byte, d Dead) []byte {
	b = append(b, d.Key[:]...)
	return appendPlace(append(b, d.Group), d.Loc)
}

func (r *reader) dead() []Dead {
	return readList(r, deadBytes, func(r *reader) Dead {
		b := r.take(deadBytes)
		if b == nil {
			return Dead{}
		}
		return Dead{Key: kv.Key(b[:16]), Group: b[16], Loc: r.placeIn(b[17:])}
	})
}

// remove = bool deleted | u64 seq | list of dead | list of string
func (op Remove) append(b []byte) []byte {
	b = slices.Grow(b, 17+len(op.Dead)*deadBytes)
	b = le.AppendUint64(appendBool(b, op.Deleted), op.Seq)
	b = appendList(b, op.Dead, appendDead)
	return appendList(b, op.Refs, appendBytes[string])
}

// move = key 16 | u8 group | place from | place to | u64 seq
func (op Move) append(b []byte) []byte {
	b = append(append(b, op.Key[:]...), op.Group)
	return le.AppendUint64(appendPlace(appendPlace(b, op.From), op.To), op.Seq)
}

// retire = fingerprint 16 | list of u64
func (op Retire) append(b []byte) []byte {
	return appendList(append(b, op.Model[:]...), op.Segments, le.AppendUint64)
}

// unref = string name
func (op Unref) append(b []byte) []byte { return appendBytes(b, op.Name) }

// flag = key 16 | u8 group | place | u8 flags
func (op Flag) append(b []byte) []byte {
	b = append(append(b, op.Key[:]...), op.Group)
	return append(appendPlace(b, op.Loc), op.Flags)
}

// barrier = u64 LSN
func (op Barrier) append(b []byte) []byte { return le.AppendUint64(b, op.LSN) }

const (
	refBytes  = 74
	noteBytes = 24
)

// ref = fingerprint 16 | block 16 | u32 tokens | bool pinned | u8 priority | time expires | time set | string name | bytes meta | bytes trail
func (op Ref) append(b []byte) []byte {
	b = append(b, op.Model[:]...)
	b = append(b, op.Block[:]...)
	b = le.AppendUint32(b, uint32(op.Tokens))
	b = append(appendBool(b, op.Pinned), op.Priority)
	b = appendTime(appendTime(b, op.Expires), op.Set)
	return appendBytes(appendBytes(appendBytes(b, op.Name), op.Meta), op.Trail)
}

func (r *reader) ref() Ref {
	return Ref{
		Model: r.id(), Block: r.id(), Tokens: r.length("tokens"), Pinned: r.bool("pinned"), Priority: r.u8(),
		Expires: r.time(), Set: r.time(), Name: r.string(), Meta: r.bytes(), Trail: r.bytes(),
	}
}

// note = fingerprint 16 | string name | bytes value
func (op Note) append(b []byte) []byte {
	return appendBytes(appendBytes(append(b, op.Model[:]...), op.Name), op.Value)
}

func (r *reader) note() Note {
	n := Note{Model: r.id(), Name: r.string(), Value: r.bytes()}
	if n.Name == "" || len(n.Name) > MaxNoteName || len(n.Value) > MaxNoteBytes {
		r.fail(ErrPayload, "a note of %d bytes, its name of %d", len(n.Value), len(n.Name))
	}
	return n
}

// snapshot = string boot | u64 next seq | u64 next segment | u64 clock | u8 former refs | ends: list of {u64 segment, u64 end} |
//
//	list of model | list of ref | tombstones: list of place | unlinked: list of u64 | flagged: list of key 16 | list of note
func (op Snapshot) append(b []byte) []byte {
	b = appendBytes(b, op.Boot)
	b = le.AppendUint64(b, op.Next.Seq)
	b = le.AppendUint64(b, op.Next.Segment)
	b = le.AppendUint64(b, op.Next.Clock)
	b = append(b, byte(op.FormerRefs))
	b = appendList(b, slices.Sorted(maps.Keys(op.Ends)), func(b []byte, id uint64) []byte {
		return le.AppendUint64(le.AppendUint64(b, id), uint64(op.Ends[id]))
	})
	b = appendList(b, op.Models, func(b []byte, m Model) []byte { return m.append(b) })
	b = appendList(b, op.Refs, func(b []byte, x Ref) []byte { return x.append(b) })
	b = appendList(b, op.Tombstones, appendPlace)
	b = appendList(b, op.Unlinked, le.AppendUint64)
	b = appendList(b, op.Flagged, func(b []byte, k kv.Key) []byte { return append(b, k[:]...) })
	return appendList(b, op.Notes, func(b []byte, n Note) []byte { return n.append(b) })
}

func (r *reader) snapshot() Snapshot {
	s := Snapshot{
		Boot: r.string(), Next: Counters{Seq: r.u64(), Segment: r.u64(), Clock: r.u64()}, FormerRefs: FormerRefs(r.u8()),
	}
	if s.FormerRefs > FormerDeleted {
		r.fail(vfs.ErrVersion, "former refs %d", s.FormerRefs)
	}
	type end struct {
		id uint64
		at int64
	}
	ends := readList(r, 16, func(r *reader) end { return end{r.u64(), r.i64("end of a segment")} })
	s.Ends = make(map[uint64]int64, len(ends))
	for _, e := range ends {
		s.Ends[e.id] = e.at
	}
	s.Models = readList(r, modelBytes, (*reader).model)
	s.Refs = readList(r, refBytes, (*reader).ref)
	s.Tombstones = readList(r, placeBytes, func(r *reader) loc.Loc { return r.place() })
	s.Unlinked = readList(r, 8, (*reader).u64)
	s.Flagged = readList(r, 16, func(r *reader) kv.Key { return r.id() })
	s.Notes = readList(r, noteBytes, (*reader).note)
	return s
}
