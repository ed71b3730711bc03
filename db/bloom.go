package db

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// bloomLoad reads the Bloom filter while the store is opened and already in use: the file is the only one whose size an
// Open would have to wait for. Until it is there, every key may be held, and the index answers.
type bloomLoad struct {
	e       *engine
	file    chan bloomFile
	loading atomic.Bool
	done    chan struct{} // closed when loading is over

	mu   sync.Mutex
	late []kv.Key // added while it was being read; guarded by mu
}

// bloomFile is what the Bloom filter's file holds.
type bloomFile struct {
	b   *index.Bloom
	lsn uint64
	err error
}

// readBloom begins to read the file.
func (e *engine) readBloom() *bloomLoad {
	l := &bloomLoad{e: e, file: make(chan bloomFile, 1), done: make(chan struct{})}
	l.loading.Store(true)
	e.bloomLoad = l
	go func() {
		b, lsn, err := index.ReadBloom(e.fs, e.path(bloomName), e.format.UUID)
		l.file <- bloomFile{b, lsn, err}
	}()
	return l
}

// open uses the filter, when it is read, if it covers all that the log does not repeat. It is called once log and index are
// open, or have failed to.
func (l *bloomLoad) open(r *recovery, failed error) {
	if failed != nil || r.rebuild || len(r.replayed.Files) == 0 {
		<-l.file
		l.end(nil)
		return
	}
	first, last, fresh := r.replayed.Files[0].FirstLSN, r.replayed.LastLSN, r.applied.LSN == 0
	go func() {
		file := <-l.file
		switch {
		case errors.Is(file.err, index.ErrMissing) && fresh && first <= 1:
			l.end(index.NewBloom(minBloomKeys, l.e.o.BloomFPR)) // the log holds all there ever was: replay fills it
			return
		case file.err != nil:
			l.e.log.Info("Bloom filter will be rebuilt", "dir", l.e.dir, "why", file.err)
		case file.lsn+1 < first || file.lsn > last:
			l.e.log.Info("Bloom filter will be rebuilt", "dir", l.e.dir, "why", "it is of another generation than the log")
		default:
			l.e.bloomLSN = file.lsn
			l.end(file.b)
			return
		}
		l.end(nil)
		l.e.signal()
	}()
}

// end puts the filter to use, nil for none, with what was added meanwhile.
func (l *bloomLoad) end(b *index.Bloom) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b != nil {
		for _, k := range l.late {
			b.Add(k)
		}
		l.e.bloom.Store(b)
	}
	l.late = nil
	l.loading.Store(false)
	close(l.done)
}

// add keeps a key for the filter that is being read. It reports false if that is there already.
func (l *bloomLoad) add(k kv.Key) bool {
	if !l.loading.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.loading.Load() {
		return false
	}
	l.late = append(l.late, k)
	return true
}

// wait returns when the filter is there, or known not to be usable.
func (l *bloomLoad) wait() {
	if l != nil {
		<-l.done
	}
}

// mayHold asks the Bloom filter.
func (e *engine) mayHold(k kv.Key) bool {
	b := e.bloom.Load()
	return b == nil || b.MayContain(k)
}

// addToBloom is called before a block is published, so that a "no" is always true.
func (e *engine) addToBloom(k kv.Key) {
	if !e.bloomLoad.add(k) {
		if b := e.bloom.Load(); b != nil {
			b.Add(k)
		}
	}
	if b := e.nextBloom.Load(); b != nil {
		b.Add(k)
	}
}

// minBloomKeys is what a 64 KiB filter holds at a false-positive rate of 0.001, and minBloomBytes what its file occupies.
const (
	minBloomKeys  = 36465
	minBloomBytes = 68 << 10
)

// bloomStale reports whether the filter is missing or too full: after many removals, or when its estimated rate is
// twice what it was sized for, at 80 % fill at the latest.
func (e *engine) bloomStale() bool {
	if e.nextBloom.Load() != nil || e.bloomLoad.loading.Load() {
		return false
	}
	b := e.bloom.Load()
	if b == nil || b.Fill() >= 0.8 || b.EstimatedFPR() > 2*e.o.BloomFPR {
		return true
	}
	return e.removed.Load() > max(8192, e.counts().Blocks/8)
}

// rebuildBloom builds a filter of what is stored now, sized for twice that, and puts it in the place of the old one.
// What is put meanwhile goes to both.
func (e *engine) rebuildBloom(ctx context.Context) error {
	e.logMu.Lock() // no publish falls between the new filter and the view
	v := e.view()
	next := index.NewBloom(int(max(minBloomKeys, 4*v.Counts().Blocks)), e.o.BloomFPR)
	e.nextBloom.Store(next)
	removed := e.removed.Load()
	e.logMu.Unlock()
	defer v.Release()
	defer e.nextBloom.Store(nil)

	var root, other kv.Key // parents come in runs
	err := v.ChildRows(func(parent kv.Key, scope kv.ScopeID, hashes []byte, child kv.Key) bool {
		next.Add(child)
		if parent != root && parent != other {
			if _, ok, err := v.Get(parent, 0); err == nil && ok {
				other = parent
			} else {
				root = parent
			}
		}
		if parent == root { // a first block that is shorter than the opening may end where a scope begins
			next.Add(e.hasher.Opening(parent, scope, hashes))
		}
		return ctx.Err() == nil
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	e.logMu.Lock() // no publish has added to the old filter only
	e.bloom.Store(next)
	e.nextBloom.Store(nil)
	e.logMu.Unlock()
	e.removed.Add(-removed)
	e.dirty.Store(true)
	return nil
}

// writeBloom saves the filter that covers the log up to lsn. The caller holds ckptMu.
func (e *engine) writeBloom(lsn uint64) error {
	e.bloomLoad.wait()
	b := e.bloom.Load()
	if b == nil {
		return nil // being rebuilt: without a file, the next open does so too
	}
	if err := index.WriteBloom(e.fs, e.dir, e.path(bloomName), b, e.format.UUID, lsn); err != nil {
		return err
	}
	e.bloomLSN = lsn
	return nil
}
