package engine

import (
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
)

// recency holds the uses of blocks that the index does not have yet: a match that ends in a block moves it up in the order of eviction, and
// waits for nobody.
type recency struct {
	mu   lock.Mutex[lock.Recency]
	uses []blockUse // guarded by mu
}

// blockUse says that a match ended in a block.
type blockUse struct {
	key    kv.Key
	minute uint32
}

// usesLimit bounds the uses that wait for a writer; more are dropped.
const usesLimit = 1 << 14

// minute is the time, as the index keeps it.
func minute() uint32 { return index.MinutesOf(time.Now()) }

// used notes that a match ended in block k.
func (r *recency) used(k kv.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.uses) < usesLimit {
		r.uses = append(r.uses, blockUse{k, minute()})
	}
}

// none reports whether no use waits.
func (r *recency) none() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.uses) == 0
}

// take hands out the uses that wait.
func (r *recency) take() []blockUse {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.uses
	r.uses = nil
	return out
}

// putBack has the uses wait that take handed out.
func (r *recency) putBack(uses []blockUse) {
	if len(uses) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	uses = append(uses, r.uses...)
	r.uses = uses[:min(len(uses), usesLimit)]
}

// updateIndex is an Update of the index that first ranks the used blocks anew, in the order in which they were used.
func (e *Engine) updateIndex(fn func(t *index.Txn) error) error {
	uses := e.recency.take()
	err := e.Index.Update(func(t *index.Txn) error {
		if err := e.rankUsed(t, uses); err != nil {
			return err
		}
		return fn(t)
	})
	if err != nil { // nothing was changed
		e.recency.putBack(uses)
	}
	return err
}

func (e *Engine) rankUsed(t *index.Txn, uses []blockUse) error {
	for _, x := range uses {
		entry, ok, err := t.Get(x.key, 0)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		entry.Hits++
		if err := t.Use(x.key, e.rank(entry), entry.Hits, x.minute); err != nil {
			return err
		}
	}
	return nil
}
