package recovery

import (
	"cmp"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/segments"
)

// Which of the records are there that the log put behind its last barrier. They are read after every end, whatever ended: the system may be the
// same, and the volume was away meanwhile; a server may have lost pages under one mount. After a clean end there are none.

// areWhole looks at all entries, in the order of the files, several at a time.
func (r *run) areWhole(entries []index.Entry) (map[loc.Loc]bool, error) {
	at := make([]*index.Entry, len(entries))
	for i := range entries {
		at[i] = &entries[i]
	}
	slices.SortFunc(at, func(a, b *index.Entry) int {
		return cmp.Or(cmp.Compare(a.Loc.Segment, b.Loc.Segment), cmp.Compare(a.Loc.Offset, b.Loc.Offset))
	})
	is, errs := make([]bool, len(at)), make([]error, len(at))
	var next atomic.Int64
	var readers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(at)) {
		readers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(at)); i = next.Add(1) - 1 {
				is[i], errs[i] = r.isWhole(at[i])
			}
		})
	}
	readers.Wait()
	whole, lost := make(map[loc.Loc]bool, len(at)), 0
	for i, x := range at {
		if errs[i] != nil {
			return nil, errs[i]
		}
		if whole[x.Loc] = is[i]; !is[i] {
			lost++
		}
	}
	if lost > 0 {
		r.Logger.Info("records are lost that were not durable, or damaged", "dir", r.Dir, "records", lost, "of", len(at))
	}
	return whole, nil
}

// isWhole reports whether a record that the replay entered is there.
func (r *run) isWhole(x *index.Entry) (bool, error) {
	switch {
	case r.Rebuilt && !r.scanned[x.Loc]:
		return false, nil
	case r.covered(x.Loc):
		return true, nil
	}
	return r.intact(x)
}

// covered reports whether a barrier says that what the replay entered at l had been durable: what is wrong there is damage.
func (r *run) covered(l loc.Loc) bool {
	p := r.arrivals[l]
	return p != nil && !p.synced && p.lsn <= r.Log.Barrier
}

// harmed reports whether the segment at l has lost what was durable before its first record was written: its name, its header, or its length,
// which nobody cuts but behind the last record that lives.
func (r *run) harmed(l loc.Loc) bool {
	if r.files == nil {
		r.files = map[uint64]segments.Info{}
		for _, f := range r.Segments.Segments() {
			r.files[f.ID] = f
		}
	}
	f, ok := r.files[l.Segment]
	return !ok || errors.Is(f.Err, damage.ErrCorrupt) || l.End() > f.Size
}

// intact reports whether every byte of a replayed record is as it was written. An error says nothing about the bytes (too many open files, no
// memory) and ends the Open: nothing is given up for that.
func (r *run) intact(x *index.Entry) (bool, error) {
	err := r.Segments.Read(x.Loc, func(rec *segments.Record) error {
		if err := IsRecord(rec, x); err != nil {
			return err
		}
		return rec.Verify()
	})
	if errors.Is(err, damage.ErrCorrupt) || errors.Is(err, segments.ErrDestroyed) || errors.Is(err, segments.ErrMissing) {
		return false, nil
	}
	return err == nil, err
}
