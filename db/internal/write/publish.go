package write

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// publishBatch is Publish for what is written.
func (w *Put) publishBatch(ctx context.Context) error {
	defer w.openGate()
	if len(w.batch) == 0 {
		return nil
	}
	batch := w.batch
	w.batch, w.batchBytes = nil, 0
	defer func() {
		for _, entry := range batch {
			if entry.Group == 0 {
				w.store.Budget.GiveUp(0, 1)
			}
		}
	}()

	defer func() {
		w.store.Pins.End(w.left)
		w.left, w.below = w.left[:0], w.below[:0]
	}()
	op, lsn, err := w.commit(batch)
	if err != nil {
		w.store.Pins.Unpin(&w.coming)
		// Nothing names these records: the next open sweeps them away, should this process not get to it.
		if lsn == 0 {
			w.store.Ledger.Catalog.Bury(deadOf(batch), false)
			for _, entry := range batch {
				w.Result.Records--
				if entry.Group == 0 {
					w.Result.Blocks--
				}
			}
		}
		return err
	}
	if lsn > 0 {
		if to := endOf(batch); to > 0 && len(w.model.Desc.Groups) == 1 { // else windows or states may still be missing
			w.Result.Tokens = to
		}
		w.store.Replaced.Add(int64(len(op.Dead)))
	}
	return nil
}

// commit publishes the records of a batch: it builds the index's next version, logs the frame, shows the version, and has pins and catalog follow.
// lsn is that of the frame; 0: nothing is logged, and if there is no error, others have stored all of it meanwhile.
func (w *Put) commit(batch []index.Entry) (op oplog.Put, lsn uint64, err error) {
	c, err := w.store.Ledger.Begin()
	if err != nil {
		return op, 0, err
	}
	defer c.End()

	// Build.
	if !w.store.Ledger.Catalog.Has(w.model.Entry) {
		return op, 0, fmt.Errorf("%w: %s", catalog.ErrRetired, w.model.Fingerprint)
	}
	if err := w.stillThere(c.Index, batch); err != nil {
		return op, 0, err
	}
	var losers []oplog.Dead
	for _, entry := range batch {
		if err := w.publishOne(c.Index, entry, &op, &losers); err != nil {
			return op, 0, err
		}
	}
	last := lastBlock(batch)
	held := !last.IsZero() && w.store.Pins.Pin(&w.coming, last) // before anybody can evict it again
	for _, r := range op.Records {
		if r.Group == 0 {
			if err := w.supersede(c.Index, r, &op); err != nil {
				return op, 0, err
			}
		}
	}

	// Log and publish.
	if len(op.Records) > 0 {
		lsn, err = c.Commit(op)
	} else {
		_, err = c.Commit(nil)
	}
	if err != nil {
		return op, lsn, err
	}
	if held {
		w.moveOn(last)
	}
	w.moveUp()
	w.store.Ledger.Catalog.Bury(losers, false)
	return op, lsn, nil
}

// stillThere fails if a block that this put rests on went: what was deleted meanwhile must not come back in a copy, nor count as stored.
func (w *Put) stillThere(t *index.Txn, batch []index.Entry) error {
	for _, k := range w.lent {
		if _, ok, err := t.Get(k, 0); err != nil || !ok {
			return errors.Join(err, &kv.NotStoredError{Needed: int(batch[0].First), Reason: kv.Reason{Code: kv.Gone, At: int(batch[0].First)}})
		}
	}
	return nil
}

func (w *Put) publishOne(t *index.Txn, entry index.Entry, op *oplog.Put, losers *[]oplog.Dead) error {
	dead := oplog.Dead{Key: entry.Key, Group: entry.Group, Loc: entry.Loc, Unseen: true}
	old, ok, err := t.Get(entry.Key, entry.Group)
	if err != nil {
		return err
	}
	if ok && old.Flags&index.FlagDamaged == 0 && covers(old, entry.RowFirst, entry.RowFirst+entry.RowCount) {
		*losers = append(*losers, dead)
		return nil
	}
	if ok && old.Flags&index.FlagDamaged == 0 && !covers(entry, old.RowFirst, old.RowFirst+old.RowCount) && !w.met[old.Loc] {
		// Another put was faster: what it stored must not go with what it added to.
		return &kv.NotStoredError{Needed: int(entry.First), Reason: kv.Reason{Code: kv.Gone, At: int(entry.First)}}
	}
	// Closure: a block is stored only below a stored parent, a group only beside its block.
	parent := entry.Parent
	if entry.Group > 0 {
		parent = entry.Key
	}
	if entry.Group > 0 || entry.First > 0 {
		if _, ok, err := t.Get(parent, 0); err != nil {
			return err
		} else if !ok {
			return &kv.NotStoredError{Needed: int(entry.First), Reason: kv.Reason{Code: kv.Gone, At: int(entry.First)}}
		}
	}
	if ok {
		op.Dead = append(op.Dead, oplog.Dead{Key: entry.Key, Group: entry.Group, Loc: old.Loc})
	}
	if entry.Group == 0 {
		w.store.Filter.Add(entry.Key)
		if entry.First == 0 { // however short: it may end where a scope begins
			w.store.Filter.Add(w.store.Search.Hasher.Opening(entry.Parent, entry.Scope, entry.Hashes))
		}
		entry.Rank, entry.Used = w.store.Ledger.Ranks.Now(w.store.Ledger.Catalog, entry), commit.Minute()
	}
	if err := t.Put(entry); err != nil {
		return err
	}
	op.Records = append(op.Records, entry)
	return nil
}

// covers reports whether a record has the rows [from, to) of its block.
func covers(x index.Entry, from, to uint16) bool {
	return x.RowFirst <= from && to <= x.RowFirst+x.RowCount
}

// moveOn lets this put, and the match that it extends, rest on the last block that was published, which is pinned.
func (w *Put) moveOn(last kv.Key) {
	w.store.Pins.Pin(&w.pin, last)
	w.store.Pins.Unpin(&w.coming)
	if w.extends != nil {
		w.extends.MoveTo(w.store.Pins, last)
	}
}

// moveUp has what rested on the partial blocks that go rest on their parents.
func (w *Put) moveUp() {
	for i, k := range w.left {
		w.store.Pins.Removed(k, w.below[i])
	}
}

// lastBlock is the deepest block of a batch; zero if there is none.
func lastBlock(batch []index.Entry) kv.Key {
	last := kv.Key{}
	for _, entry := range batch {
		if entry.Group == 0 {
			last = entry.Key
		}
	}
	return last
}

// endOf is where the last block of a batch ends; 0: it has none.
func endOf(batch []index.Entry) (tokens int) {
	for _, entry := range batch {
		if entry.Group == 0 {
			tokens = int(entry.First) + int(entry.Tokens)
		}
	}
	return tokens
}

// deadOf are the records of a batch that was never published.
func deadOf(batch []index.Entry) []oplog.Dead {
	out := make([]oplog.Dead, 0, len(batch))
	for _, entry := range batch {
		out = append(out, oplog.Dead{Key: entry.Key, Group: entry.Group, Loc: entry.Loc, Unseen: true})
	}
	return out
}
