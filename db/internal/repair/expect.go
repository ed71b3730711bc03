package repair

import (
	"fmt"
	"strings"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// collect takes over the entries that the recovery ended with, with the recency that the index knew.
func (w *damagedStore) collect() error {
	rows := make(map[recovery.ID]index.Entry, len(w.index.Entries))
	for _, x := range w.index.Entries {
		rows[recovery.IDOf(&x)] = x
	}
	// With neither a log nor the small state in the index, the rows alone say what had been deleted: what they lack, and is
	// older than the checkpoint.
	veto := w.index.Complete && !w.log.HasFirst && len(w.index.Applied.Extra) == 0
	v := w.found.Index.View()
	defer v.Release()
	return v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		row, ok := rows[recovery.IDOf(&x)]
		switch {
		case w.later != nil && w.later.IsDead(x.Loc):
			return true
		case veto && x.Seq < w.index.Applied.NextSeq && (!ok || row.Loc != x.Loc):
			return true
		case ok && row.Loc == x.Loc && row.Seq == x.Seq:
			x.Rank, x.Hits, x.Used, x.Flags, x.RowFirst, x.RowCount = row.Rank, row.Hits, row.Used, row.Flags, row.RowFirst, row.RowCount
		case x.Group == 0:
			w.unranked++
		}
		w.entries[recovery.IDOf(&x)] = x
		return true
	})
}

// expect works out what was stored according to the index and the log: what is not saved of it is lost.
func (w *damagedStore) expect() {
	for _, x := range w.index.Entries {
		w.expected[recovery.IDOf(&x)] = x
	}
	applied := uint64(0)
	if w.index.Complete {
		applied = w.index.Applied.LSN
	}
	for _, f := range w.log.Frames {
		if f.LSN > applied {
			w.expectFrame(f)
		}
	}
	dead := w.log.Tombstones(w.known.Extra)
	for id, x := range w.expected {
		if dead[x.Loc] {
			delete(w.expected, id)
		}
	}
	log := w.log
	if w.exact = w.log.HasFirst && len(log.Damage) == 0; !w.exact {
		return
	}
	if first := log.Files[0].FirstLSN; w.index.Complete {
		w.exact = first <= w.index.Applied.LSN+1 && log.LastLSN >= w.index.Applied.LSN
	} else {
		w.exact = first <= 1 && w.log.First.Next.Segment <= 1 // the log goes back to the very beginning
	}
}

// expectFrame applies a frame to expected.
func (w *damagedStore) expectFrame(f recovery.Frame) {
	remove := func(dead []oplog.Dead, seq uint64) { // where the log is damaged, from wherever it lies, up to that number
		for _, d := range dead {
			x, ok := w.expected[recovery.ID{Key: d.Key, Group: d.Group}]
			if ok && (x.Loc == d.Loc || w.log.Damaged() && x.Seq <= seq) {
				delete(w.expected, recovery.ID{Key: d.Key, Group: d.Group})
			}
		}
	}
	switch op := f.Op.(type) {
	case oplog.Put:
		for _, rec := range op.Records {
			x := rec.Entry()
			w.expected[recovery.IDOf(&x)] = x
		}
		remove(op.Dead, 0)
	case oplog.Remove:
		remove(op.Dead, op.Seq)
	case oplog.Move:
		id := recovery.ID{Key: op.Key, Group: op.Group}
		if x, ok := w.expected[id]; ok && x.Loc == op.From {
			x.Loc, x.Seq = op.To, op.Seq
			w.expected[id] = x
		}
	case oplog.Retire:
		for id, x := range w.expected {
			if x.Model == op.Model {
				delete(w.expected, id)
			}
		}
	}
}

// sayUnknown says what nobody can know any more.
func (w *damagedStore) sayUnknown() {
	log := w.log
	switch {
	case !log.HasFirst && len(w.known.Extra) == 0:
		w.unknown("neither log nor index can be read: refs are lost, and what was deleted is back if its bytes were not yet destroyed")
	case len(log.Files) == 0:
		w.unknown("the log is lost: refs and deletions are as of the last checkpoint; what was deleted after it is back if its bytes were not yet destroyed")
	case w.torn:
		w.unknown("the log ends in bytes that are no frame, as a crash leaves them, and so does damage: what they said of puts, refs and deletions is not known")
	case len(log.Damage) > 0:
		w.unknown("the log is damaged: what the damaged frames said of refs and deletions is not known; what they deleted is back if its bytes were not yet destroyed")
	case w.indexed && !w.index.Older && w.index.Applied.LSN > log.LastLSN:
		w.unknown("the log ends at frame %d, the index was written at frame %d: what came after that is not known", log.LastLSN, w.index.Applied.LSN)
	}
	if w.indexed && w.index.Older && !log.HasFirst {
		w.unknown("a meta page of index.db is damaged: refs and deletions may be those of the checkpoint before the last")
	}
	if missing, n := w.missingSegments(); n > 0 && !w.index.Complete && !w.exact {
		w.unknown("%d of %d segments (%s) are not there, and index.db cannot say whether they were given up or are lost", n, w.set.MaxID(), missing)
	}
	if w.unranked > 0 && !w.index.Complete {
		w.note("of %d blocks it is not known when they were last used: they count as used when they were put", w.unranked)
	}
}

// missingSegments counts the segments that once were, are not there, and that the log does not say to be given up.
func (w *damagedStore) missingSegments() (list string, n int) {
	for id := uint64(1); id <= w.set.MaxID(); id++ {
		if w.found.Catalog.IsUnlinked(id) || w.set.Has(id) {
			continue
		}
		switch n++; {
		case n <= 8:
			list += fmt.Sprintf(", %d", id)
		case n == 9:
			list += ", …"
		}
	}
	return strings.TrimPrefix(list, ", "), n
}
