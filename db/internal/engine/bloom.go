package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
)

// bloomLoad reads the Bloom filter when the store is already in use: its file is the only one whose size an Open would have
// to wait for; reading it beside Open made some Opens ten times as long on two processors. Until it is there, every key may
// be held, and the index answers.
type bloomLoad struct {
	e    *Engine
	once sync.Once
	done chan struct{} // closed when loading is over

	// What the file must cover to be used: all that the log does not repeat.
	fresh       bool // the log holds all there ever was, if it begins with the first frame
	first, last uint64
}

// pendingKeys are the keys that are put while a filter is read or built: it gets them last.
type pendingKeys struct {
	on   atomic.Bool // a filter is being read or built
	mu   lock.Mutex[lock.PendingKeys]
	keys []kv.Key // guarded by mu
}

// add keeps a key if there is a filter to come.
func (l *pendingKeys) add(k kv.Key) {
	if !l.on.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.on.Load() {
		l.keys = append(l.keys, k)
	}
}

// end puts the filter to use, with the keys that are pending; nil for none.
func (l *pendingKeys) end(e *Engine, b *index.Bloom) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b != nil {
		for _, k := range l.keys {
			b.Add(k)
		}
		e.bloom.Store(b)
	}
	l.keys = nil
	l.on.Store(false)
}

// planBloom decides whether the Bloom filter's file can be used, which start then reads. The keys that the replay found are pending.
func (e *Engine) planBloom(r *recovery.Result) {
	l := &bloomLoad{e: e, done: make(chan struct{}), fresh: r.Applied.LSN == 0}
	e.bloomLoad = l
	if r.Rebuilt || len(r.Log.Files) == 0 {
		e.pending.end(e, nil)
		l.drop()
		return
	}
	l.first, l.last = r.Log.Files[0].FirstLSN, r.Log.LastLSN
}

// start begins to read the file.
func (l *bloomLoad) start() {
	l.once.Do(func() {
		go func() {
			b := l.read()
			l.e.pending.end(l.e, b)
			close(l.done)
			if b == nil {
				l.e.Signal()
			}
		}()
	})
}

// read returns the filter, or nil if it must be rebuilt.
func (l *bloomLoad) read() *index.Bloom {
	e := l.e
	b, lsn, err := index.ReadBloom(e.FS, e.Path(folder.BloomName), e.Format.UUID)
	switch {
	case errors.Is(err, index.ErrMissing) && l.fresh && l.first <= 1:
		return index.NewBloom(minBloomKeys, e.o.BloomFPR) // replay fills it
	case err != nil:
		e.log.Info("Bloom filter will be rebuilt", "dir", e.Dir, "why", err)
	case lsn+1 < l.first || lsn > l.last:
		e.log.Info("Bloom filter will be rebuilt", "dir", e.Dir, "why", "it is of another generation than the log")
	default:
		e.bloomLSN = lsn
		return b
	}
	return nil
}

// drop gives the filter up, if nobody has begun to read it, or waits for it.
func (l *bloomLoad) drop() {
	if l != nil {
		l.once.Do(func() { close(l.done) })
		<-l.done
	}
}

// wait returns when the filter is there, or known not to be usable.
func (l *bloomLoad) wait() {
	if l != nil {
		l.start()
		<-l.done
	}
}

// AddToBloom is called before a block is published, so that a "no" is always true.
func (e *Engine) AddToBloom(k kv.Key) {
	e.pending.add(k)
	if b := e.bloom.Load(); b != nil {
		b.Add(k)
	}
}

// minBloomKeys is what a 64 KiB filter holds at a false-positive rate of 0.001, and minBloomBytes what its file occupies.
const (
	minBloomKeys  = 36465
	minBloomBytes = 68 << 10
)

// BloomStale reports whether the filter is missing or too full: after many removals, or when its estimated rate is
// twice what it was sized for, at 80 % fill at the latest.
func (e *Engine) BloomStale() bool {
	if e.pending.on.Load() {
		return false
	}
	b := e.bloom.Load()
	if b == nil || b.Fill() >= 0.8 || b.EstimatedFPR() > 2*e.o.BloomFPR {
		return true
	}
	return e.removed.Load() > max(8192, e.Counts().Blocks/8)
}

// RebuildBloom builds a filter of what is stored now, sized for twice that, and puts it in the place of the old one.
func (e *Engine) RebuildBloom(ctx context.Context) error {
	e.bloomLoad.wait()
	e.rebuildMu.Lock()
	defer e.rebuildMu.Unlock()
	e.commitMu.Lock() // every publish is in the view, or its keys are pending
	v := e.View()
	e.pending.on.Store(true)
	removed := e.removed.Load()
	e.commitMu.Unlock()
	defer v.Release()

	next, err := e.bloomOf(ctx, v)
	if err != nil {
		e.pending.end(e, nil)
		return err
	}
	e.pending.end(e, next)
	e.removed.Add(-removed)
	e.dirty.Store(true)
	return nil
}

// bloomOf is a filter of all keys in v.
func (e *Engine) bloomOf(ctx context.Context, v *index.View) (*index.Bloom, error) {
	var err error
	pace := e.workers.HousePace()
	b := index.FillBloom(int(max(minBloomKeys, 4*v.Counts().Blocks)), e.o.BloomFPR, func(yield func(kv.Key) bool) {
		var root, other kv.Key // parents come in runs
		err = v.ChildRows(func(parent kv.Key, scope kv.ScopeID, hashes []byte, child kv.Key) bool {
			if e.growth.Load() < e.o.CheckpointBytes { // else the worker has a checkpoint to make
				pace.Rest()
			}
			if parent != root && parent != other {
				if _, ok, err := v.Get(parent, 0); err == nil && ok {
					other = parent
				} else {
					root = parent
				}
			}
			if parent == root { // a first block that is shorter than the opening may end where a scope begins
				if !yield(e.Hasher.Opening(parent, scope, hashes)) {
					return false
				}
			}
			return yield(child) && ctx.Err() == nil
		})
	})
	return b, errors.Join(err, ctx.Err())
}

// writeBloom saves the filter of a checkpoint. The caller holds ckptMu.
func (e *Engine) writeBloom(c *checkpointing) error {
	if c.bloom == nil {
		return nil // being rebuilt: without a file, the next open does so too
	}
	if err := index.WriteBloom(e.FS, e.Dir, e.Path(folder.BloomName), c.bloom, e.Format.UUID, c.applied.LSN); err != nil {
		return err
	}
	e.bloomLSN = c.applied.LSN
	return nil
}
