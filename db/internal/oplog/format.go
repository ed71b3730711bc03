package oplog

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/packed"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// This file alone knows the payloads. docs/format/oplog.md says the same in words.

// Encode returns the payload of an operation's frame.
func Encode(op Op) []byte { return op.append(nil) }

// Decode reads the payload of a frame. The error is ErrPayload, or vfs.ErrVersion for what another release wrote. Of what it returns, only
// the descriptors of models share the payload.
func Decode(kind uint8, payload []byte) (Op, error) {
	r := &reader{packed.NewReader(payload)}
	var op Op
	switch kind {
	case KindSnapshot:
		op = r.snapshot()
	case KindPut:
		op = Put{Records: packed.List(&r.Reader, recordBytes, r.record), Dead: r.dead()}
	case KindRemove:
		op = Remove{Deleted: r.Bool("deleted"), Seq: r.U64(), Dead: r.dead(), Refs: packed.List(&r.Reader, 4, r.Text)}
	case KindMove:
		op = Move{Key: r.ID(), Group: r.U8(), From: r.place(), To: r.place(), Seq: r.U64()}
	case KindModel:
		op = r.model()
	case KindRetire:
		op = Retire{Model: r.ID(), Segments: packed.List(&r.Reader, 8, r.U64)}
	case KindRef:
		op = r.ref()
	case KindUnref:
		op = Unref{Name: r.Text()}
	case KindFlag:
		op = Flag{Key: r.ID(), Group: r.U8(), Loc: r.place(), Flags: r.flags()}
	case KindNote:
		op = r.note()
	case KindBarrier:
		op = Barrier{LSN: r.U64()}
	default:
		return nil, fmt.Errorf("%w: kind %d, expected 1 to %d", vfs.ErrVersion, kind, lastKind)
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return op, nil
}

// put = list of record | list of dead
func (op Put) append(b []byte) []byte {
	b = slices.Grow(b, 8+len(op.Records)*(recordBytes+256)+len(op.Dead)*deadBytes)
	b = packed.AppendList(b, op.Records, appendRecord)
	return packed.AppendList(b, op.Dead, appendDead)
}

// recordBytes is the length of a record without its hashes.
const recordBytes = 138

// A record; kind and runtime key are those of the record itself (docs/format/record.md), of which there is only one yet.
//
//	  0 │ key 16 │ parent 16 │ fingerprint 16 │ scope 16 │ runtime key 16 = 0 │
//	 80 │ place 25 │ u8 kind = 1 │ u8 group │ u8 flags │
//	108 │ u32 first │ u16 tokens │ u16 first row │ u16 rows │ u64 seq │ u64 created │
//	134 │ bytes hashes │
func appendRecord(b []byte, x index.Entry) []byte {
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
	return packed.AppendBytes(b, x.Hashes)
}

// kindChained is that of records in segments, of which there is only one.
const kindChained = 1

func (r *reader) record() index.Entry {
	b := r.Take(recordBytes - 4)
	if b == nil {
		return index.Entry{}
	}
	x := index.Entry{
		Key: kv.Key(b[0:16]), Parent: kv.Key(b[16:32]), Model: kv.Fingerprint(b[32:48]), Scope: kv.ScopeID(b[48:64]),
		Loc: r.placeIn(b[80:]), Group: b[106], Flags: b[107],
		First: le.Uint32(b[108:]), Tokens: le.Uint16(b[112:]), RowFirst: le.Uint16(b[114:]), RowCount: le.Uint16(b[116:]),
		Seq: le.Uint64(b[118:]), Created: int64(le.Uint64(b[126:])), Hashes: r.Bytes(),
	}
	if [16]byte(b[64:80]) != [16]byte{} {
		r.Fail(vfs.ErrVersion, "a runtime's own key")
	}
	r.known("record kind", uint64(b[105]), kindChained)
	r.known("flags", uint64(x.Flags&^knownFlags), 0)
	if x.Created < 0 {
		r.Fail(ErrPayload, "created %d seconds before 1970", -x.Created)
	}
	if n := len(x.Hashes); n%kv.TokenHashBytes != 0 {
		r.Fail(ErrPayload, "%d bytes of token hashes", n)
	}
	return x
}

// knownFlags are those of an entry of the index.
const knownFlags = index.FlagDamaged | index.FlagPartial | index.FlagScopeRoot

func (r *reader) flags() uint8 {
	f := r.U8()
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
	return packed.List(&r.Reader, deadBytes, func() Dead {
		b := r.Take(deadBytes)
		if b == nil {
			return Dead{}
		}
		return Dead{Key: kv.Key(b[:16]), Group: b[16], Loc: r.placeIn(b[17:])}
	})
}

// remove = bool deleted | u64 seq | list of dead | list of string
func (op Remove) append(b []byte) []byte {
	b = slices.Grow(b, 17+len(op.Dead)*deadBytes)
	b = le.AppendUint64(packed.AppendBool(b, op.Deleted), op.Seq)
	b = packed.AppendList(b, op.Dead, appendDead)
	return packed.AppendList(b, op.Refs, packed.AppendBytes[string])
}

// move = key 16 | u8 group | place from | place to | u64 seq
func (op Move) append(b []byte) []byte {
	b = append(append(b, op.Key[:]...), op.Group)
	return le.AppendUint64(appendPlace(appendPlace(b, op.From), op.To), op.Seq)
}

// retire = fingerprint 16 | list of u64
func (op Retire) append(b []byte) []byte {
	return packed.AppendList(append(b, op.Model[:]...), op.Segments, le.AppendUint64)
}

// unref = string name
func (op Unref) append(b []byte) []byte { return packed.AppendBytes(b, op.Name) }

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
	b = append(packed.AppendBool(b, op.Pinned), op.Priority)
	b = appendTime(appendTime(b, op.Expires), op.Set)
	return packed.AppendBytes(packed.AppendBytes(packed.AppendBytes(b, op.Name), op.Meta), op.Trail)
}

func (r *reader) ref() Ref {
	return Ref{
		Model: r.ID(), Block: r.ID(), Tokens: r.Length("tokens"), Pinned: r.Bool("pinned"), Priority: r.U8(),
		Expires: r.time(), Set: r.time(), Name: r.Text(), Meta: r.Bytes(), Trail: r.Bytes(),
	}
}

// note = fingerprint 16 | string name | bytes value
func (op Note) append(b []byte) []byte {
	return packed.AppendBytes(packed.AppendBytes(append(b, op.Model[:]...), op.Name), op.Value)
}

func (r *reader) note() Note {
	n := Note{Model: r.ID(), Name: r.Text(), Value: r.Bytes()}
	if n.Name == "" || len(n.Name) > MaxNoteName || len(n.Value) > MaxNoteBytes {
		r.Fail(ErrPayload, "a note of %d bytes, its name of %d", len(n.Value), len(n.Name))
	}
	return n
}

// snapshot = string "" | u64 next seq | u64 next segment | u64 clock | u8 former refs | ends: list of {u64 segment, u64 end} |
//
//	list of model | list of ref | tombstones: list of place | unlinked: list of u64 | flagged: list of key 16 | list of note
func (op Snapshot) append(b []byte) []byte {
	b = packed.AppendBytes(b, "")
	b = le.AppendUint64(b, op.Next.Seq)
	b = le.AppendUint64(b, op.Next.Segment)
	b = le.AppendUint64(b, op.Next.Clock)
	b = append(b, byte(op.FormerRefs))
	b = packed.AppendList(b, slices.Sorted(maps.Keys(op.Ends)), func(b []byte, id uint64) []byte {
		return le.AppendUint64(le.AppendUint64(b, id), uint64(op.Ends[id]))
	})
	b = packed.AppendList(b, op.Models, func(b []byte, m Model) []byte { return m.append(b) })
	b = packed.AppendList(b, op.Refs, func(b []byte, x Ref) []byte { return x.append(b) })
	b = packed.AppendList(b, op.Tombstones, appendPlace)
	b = packed.AppendList(b, op.Unlinked, le.AppendUint64)
	b = packed.AppendList(b, op.Flagged, func(b []byte, k kv.Key) []byte { return append(b, k[:]...) })
	return packed.AppendList(b, op.Notes, func(b []byte, n Note) []byte { return n.append(b) })
}

func (r *reader) snapshot() Snapshot {
	r.Text() // of a boot, where an earlier build wrote it: nothing depends on that
	s := Snapshot{
		Next: Counters{Seq: r.U64(), Segment: r.U64(), Clock: r.U64()}, FormerRefs: FormerRefs(r.U8()),
	}
	if s.FormerRefs > FormerDeleted {
		r.Fail(vfs.ErrVersion, "former refs %d", s.FormerRefs)
	}
	type end struct {
		id uint64
		at int64
	}
	ends := packed.List(&r.Reader, 16, func() end { return end{r.U64(), r.i64("end of a segment")} })
	s.Ends = make(map[uint64]int64, len(ends))
	for _, e := range ends {
		s.Ends[e.id] = e.at
	}
	s.Models = packed.List(&r.Reader, modelBytes, r.model)
	s.Refs = packed.List(&r.Reader, refBytes, r.ref)
	s.Tombstones = packed.List(&r.Reader, placeBytes, r.place)
	s.Unlinked = packed.List(&r.Reader, 8, r.U64)
	s.Flagged = packed.List(&r.Reader, 16, func() kv.Key { return r.ID() })
	s.Notes = packed.List(&r.Reader, noteBytes, r.note)
	return s
}
