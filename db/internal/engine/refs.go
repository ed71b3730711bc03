package engine

import (
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// LogRef makes ref known, if what a lookup found is still stored: a Delete takes what is pinned, too, and a put that comes next may
// bring back the block without the state that it had. No checkpoint comes between the frame and the ranks that follow from it.
func (e *Engine) LogRef(ref oplog.Ref, found *prefix.Lookup) error {
	lsn, err := e.logRef(ref, found)
	if err != nil {
		return err
	}
	return e.durable(lsn)
}

func (e *Engine) logRef(ref oplog.Ref, found *prefix.Lookup) (lsn uint64, err error) {
	e.commitMu.Lock()
	defer e.commitMu.Unlock()
	v := e.View()
	stored, err := found.StillIn(v, ref.Block)
	v.Release()
	if err != nil {
		return 0, err
	}
	if !stored {
		return 0, ErrRefGone
	}
	if err := e.Catalog.RefFits(ref); err != nil { // others may have come meanwhile
		return 0, err
	}
	old, had := e.Catalog.Ref(ref.Name)
	lsn, err = e.logStateLocked(ref)
	if err != nil {
		return 0, err
	}
	if had && old.Block != ref.Block {
		return lsn, e.reclassLocked(ref.Block, old.Block)
	}
	return lsn, e.reclassLocked(ref.Block)
}

// ReserveRef reserves what a ref takes, if there is room without evicting: in the log, in the head of the next log file and in the index.
func (e *Engine) ReserveRef(r oplog.Ref) (bytes int64, ok bool) {
	bytes = 3 * r.Bytes()
	if old, ok := e.Catalog.Ref(r.Name); ok {
		bytes = max(bytes-2*old.Bytes(), r.Bytes()) // its copies go when this one's come
	}
	e.measureOnce()
	return bytes, e.space.reserve(bytes, e.o.Budget-e.reserveBytes())
}

// dropRef drops a ref; if expired is set only one whose time is over, and which nobody set anew meanwhile. It is not durable yet.
func (e *Engine) dropRef(name string, expired bool) (lsn uint64, err error) {
	e.commitMu.Lock()
	defer e.commitMu.Unlock()
	old, ok := e.Catalog.Ref(name)
	if !ok || expired && !old.Expired(time.Now()) {
		return 0, fmt.Errorf("%w: ref %q", ErrNotFound, name)
	}
	lsn, err = e.logStateLocked(oplog.Unref{Name: name})
	if err != nil {
		return 0, err
	}
	return lsn, e.reclassLocked(old.Block)
}

// Reclass ranks a block anew after its refs changed.
func (e *Engine) Reclass(k kv.Key) error {
	e.commitMu.Lock()
	defer e.commitMu.Unlock()
	return e.reclassLocked(k)
}

func (e *Engine) reclassLocked(keys ...kv.Key) error {
	_, err := e.commitLocked(func(t *index.Txn) (oplog.Op, error) {
		for _, k := range keys {
			if err := recovery.Rerank(t, e.Catalog, k); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	return err
}

// DeleteRef drops a ref. In Power mode it returns when that is durable, also where another call has dropped it.
func (e *Engine) DeleteRef(name string) error {
	lsn, err := e.dropRef(name, false)
	switch {
	case err == nil:
		err = e.durable(lsn)
	case e.o.Power:
		err = e.goneForGood(err, e.wal.Sync)
	}
	return err
}
