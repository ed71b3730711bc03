package db

import (
	"context"
	"sync"

	"github.com/dormousekv/dormouse/segments"
)

const (
	// pieceBytes is what one read of a fetch asks for, and its alignment: a huge page of most processors.
	pieceBytes = 2 << 20
	// fetchers is how many reads of one fetch are on their way at once, and storeFetchers those of a store.
	fetchers, storeFetchers = 8, 16
	// aheadPieces is how far a restore reads ahead of what it works on.
	aheadPieces = 32
)

// fetchPiece is a part of a segment that a fetch reads at once.
type fetchPiece struct {
	segment     uint64
	first, last int64 // the bytes [first, last) that are wanted
}

// fetch reads records into memory in their order, ahead of those who use them. A nil *fetch is for what is there already.
type fetch struct {
	e      *engine
	pieces []fetchPiece
	ends   []int // by record: how many pieces, from the first on, hold it

	mu    sync.Mutex
	moved sync.Cond
	next  int    // of pieces: the first that nobody reads
	here  []bool // of pieces
	whole int    // pieces that are there with all before them
	until int    // pieces that may be read by now
	over  bool
	done  sync.WaitGroup
}

// newFetch plans reading records, which should be in the order of their use.
func newFetch(e *engine, n int, record func(i int) segments.Loc) *fetch {
	f := &fetch{e: e, ends: make([]int, n)}
	f.moved.L = &f.mu
	for i := range n {
		loc := record(i)
		if !e.set.Covers(loc) {
			loc.Length = 0 // as only a damaged index says: whoever reads it will notice
		}
		for off := loc.Offset; off < loc.End(); {
			end := min(loc.End(), (off/pieceBytes+1)*pieceBytes)
			if k := len(f.pieces) - 1; k >= 0 && f.pieces[k].segment == loc.Segment && f.pieces[k].first/pieceBytes == off/pieceBytes {
				f.pieces[k].first, f.pieces[k].last = min(f.pieces[k].first, off), max(f.pieces[k].last, end)
			} else {
				f.pieces = append(f.pieces, fetchPiece{segment: loc.Segment, first: off, last: end})
			}
			off = end
		}
		f.ends[i] = len(f.pieces)
	}
	f.here = make([]bool, len(f.pieces))
	return f
}

// start begins to read the first pieces, at most ahead of them before somebody waits for a record.
func (f *fetch) start(ahead int) {
	f.until = min(ahead, len(f.pieces))
	for range min(fetchers, len(f.pieces)) {
		f.done.Go(f.work)
	}
}

func (f *fetch) work() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		for f.next >= f.until && f.next < len(f.pieces) && !f.over {
			f.moved.Wait()
		}
		if f.next >= len(f.pieces) || f.over {
			return
		}
		k := f.next
		f.next++
		f.mu.Unlock()
		f.e.fetching <- struct{}{}
		f.read(f.pieces[k])
		<-f.e.fetching
		f.mu.Lock()
		f.here[k] = true
		for f.whole < len(f.here) && f.here[f.whole] {
			f.whole++
		}
		f.moved.Broadcast()
	}
}

// read brings in the whole of a piece, where at least half of it is wanted: a device is faster at that.
func (f *fetch) read(p fetchPiece) {
	if p.last-p.first >= pieceBytes/2 {
		f.e.set.Fetch(p.segment, p.first/pieceBytes*pieceBytes, pieceBytes)
		return
	}
	f.e.set.ReadAhead(segments.Loc{Segment: p.segment, Offset: p.first, Length: p.last - p.first})
}

// wait returns when record i is there, or cannot be had.
func (f *fetch) wait(i int) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if until := min(f.ends[i]+aheadPieces, len(f.pieces)); until > f.until {
		f.until = until
		f.moved.Broadcast()
	}
	for f.whole < f.ends[i] && !f.over {
		f.moved.Wait()
	}
}

// all waits for every piece, or until ctx is done.
func (f *fetch) all(ctx context.Context) error {
	defer context.AfterFunc(ctx, f.stop)()
	f.done.Wait()
	return ctx.Err()
}

// stop ends the reading; what is on its way is waited for.
func (f *fetch) stop() {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.over = true
	f.moved.Broadcast()
	f.mu.Unlock()
	f.done.Wait()
}
