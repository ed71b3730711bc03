package recovery

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
)

// Recovery reads every record that the log put behind its last barrier. It does so after every end of a process: the volume may have been away in
// the same boot, or a server may have lost pages under one mount. After a clean end there is no such record.

// areWhole reads the records of all entries, in the order of the files, several at a time.
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
	case r.Rebuilt && !r.scan.records[x.Loc]:
		return false, nil
	case r.arrivals.covered(x.Loc, r.Log.Barrier):
		return true, nil
	}
	return r.disk.intact(x)
}
