package oplog

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/packed"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Snapshot is the small state of a store, as the head of each log file repeats it.
type Snapshot struct {
	Next       Counters
	Ends       map[uint64]int64 // segments that were being written, and up to where every record in them is named
	Models     []Model
	Refs       []Ref
	Tombstones []loc.Loc // records whose bytes may still be there
	Unlinked   []uint64  // segments whose files may still be there
	Flagged    []kv.Key  // blocks of which a record was found damaged
	Notes      []Note
	FormerRefs FormerRefs
}

// FormerRefs says whether log and index may hold what refs said that are gone. The numbers are stored.
type FormerRefs uint8

const (
	FormerNone    FormerRefs = iota
	FormerSet                // of refs that were set anew: it goes in time
	FormerDeleted            // something was deleted since: the next Sync sees to it
)

func (Snapshot) Kind() uint8 { return KindSnapshot }

func (op Snapshot) String() string {
	return fmt.Sprintf("snapshot of %s, %s, %s, %s", count(len(op.Models), "model"), count(len(op.Refs), "ref"), count(len(op.Notes), "note"),
		count(len(op.Tombstones), "tombstone"))
}

// A head is reserved with the log file that it begins.
func (Snapshot) Room() Room { return Last }

func (op Snapshot) Numbers() Counters { return op.Next }

func (op Snapshot) Places(see func(at loc.Loc, is Use)) {
	for _, at := range op.Tombstones {
		see(at, UseListed)
	}
}

func (op Snapshot) Replay(ix Index) error { return ix.RemoveListed(op.Tombstones) }

func (op Snapshot) Change(c Catalog) { c.Become(op) }

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

func (Snapshot) read(r *reader) Op {
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
	s.Models = packed.List(&r.Reader, modelBytes, func() Model { return readModel(r) })
	s.Refs = packed.List(&r.Reader, refBytes, func() Ref { return readRef(r) })
	s.Tombstones = packed.List(&r.Reader, placeBytes, r.place)
	s.Unlinked = packed.List(&r.Reader, 8, r.U64)
	s.Flagged = packed.List(&r.Reader, 16, func() kv.Key { return r.ID() })
	s.Notes = packed.List(&r.Reader, noteBytes, func() Note { return readNote(r) })
	return s
}
