package db

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// publish makes the batch visible: one log frame, one index version. Records that another put stored meanwhile lose, and
// are destroyed; tails that a new block extends, and poorer records, are replaced.
func (w *putter) publish(ctx context.Context) error {
	defer w.giveBack()
	return errors.Join(w.flush(ctx), w.publishBatch(ctx))
}

// publishBatch is publish for what is written.
func (w *putter) publishBatch(ctx context.Context) error {
	if w.gated {
		w.gated = false
		defer w.e.gate.RUnlock()
	}
	if len(w.batch) == 0 {
		return nil
	}
	e := w.e
	batch := w.batch
	w.batch, w.batchBytes = nil, 0
	defer func() {
		for _, entry := range batch {
			if entry.Group == 0 {
				e.space.giveUp(0, 1)
			}
		}
	}()

	defer func() {
		e.pins.End(w.left)
		w.left = w.left[:0]
	}()
	var op oplog.Put
	var losers []oplog.Dead
	last, held := lastBlock(batch), false
	lsn, err := e.commit(func(t *index.Txn) (oplog.Op, error) {
		if !e.registered(w.m.ms) {
			return nil, fmt.Errorf("%w: %s", ErrRetired, w.m.ms.Fingerprint)
		}
		// What was deleted meanwhile must not come back in a copy, nor count as stored.
		for _, k := range w.lent {
			if _, ok, err := t.Get(k, 0); err != nil || !ok {
				return nil, errors.Join(err, &NotStoredError{Needed: int(batch[0].First), Reason: Reason{Code: Gone, At: int(batch[0].First)}})
			}
		}
		for _, entry := range batch {
			if err := w.publishOne(t, entry, &op, &losers); err != nil {
				return nil, err
			}
		}
		held = !last.IsZero() && e.pins.Pin(last) // before anybody can evict it again
		if len(op.Records) == 0 {
			return nil, nil
		}
		for _, r := range op.Records {
			if r.Group == 0 {
				if err := w.supersede(t, r.Entry(), &op); err != nil {
					return nil, err
				}
			}
		}
		return op, nil
	})
	if err != nil {
		if held {
			e.pins.Unpin(last)
		}
		// Nothing names these records: the next open sweeps them away, should this process not get to it.
		if lsn == 0 {
			e.doom(deadOf(batch), false)
			for _, entry := range batch {
				w.result.Records--
				if entry.Group == 0 {
					w.result.Blocks--
				}
			}
		}
		return err
	}
	e.doom(op.Dead, len(op.Dead) > 0) // what takes their place must be durable first
	e.doom(losers, false)
	if lsn > 0 {
		w.lsn = lsn
		e.count.replaced.Add(int64(len(op.Dead)))
	}
	if held {
		w.moveOn(last)
	}
	return nil
}

func (w *putter) publishOne(t *index.Txn, entry index.Entry, op *oplog.Put, losers *[]oplog.Dead) error {
	e := w.e
	dead := oplog.Dead{Key: entry.Key, Group: entry.Group, Loc: entry.Loc}
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
		return &NotStoredError{Needed: int(entry.First), Reason: Reason{Code: Gone, At: int(entry.First)}}
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
			return &NotStoredError{Needed: int(entry.First), Reason: Reason{Code: Gone, At: int(entry.First)}}
		}
	}
	if ok {
		op.Dead = append(op.Dead, oplog.Dead{Key: entry.Key, Group: entry.Group, Loc: old.Loc})
	}
	if entry.Group == 0 {
		e.addToBloom(entry.Key)
		if entry.First == 0 { // however short: it may end where a scope begins
			e.addToBloom(e.hasher.Opening(entry.Parent, entry.Scope, entry.Hashes))
		}
		entry.Rank, entry.Used = e.rank(entry), minute()
	}
	if err := t.Put(entry); err != nil {
		return err
	}
	op.Records = append(op.Records, oplog.RecordOf(entry, w.created))
	return nil
}

// covers reports whether a record has the rows [from, to) of its block.
func covers(x index.Entry, from, to uint16) bool {
	return x.RowFirst <= from && to <= x.RowFirst+x.RowCount
}

// supersede removes the tails whose tokens a new block begins with: their rows are in it.
func (w *putter) supersede(t *index.Txn, block index.Entry, op *oplog.Put) error {
	i := w.p.BlockAt(int(block.First), w.m.ms.desc.BlockTokens)
	tails, err := prefix.StoredPrefixes(t, w.e.hasher, &w.p, w.chain, i, int(block.First)+int(block.Tokens)-1)
	if err != nil {
		return err
	}
	for _, f := range tails {
		k := f.Key
		tail, ok, err := t.Get(k, 0)
		if err != nil {
			return err
		}
		if !ok || tail.Parent != block.Parent || tail.Scope != block.Scope || w.needed(k) {
			continue
		}
		records, err := w.covered(t, k, block.Key, op)
		if err != nil {
			return err
		}
		if len(records) == 0 || !w.leave(k) {
			continue
		}
		for _, r := range records {
			op.Dead = append(op.Dead, oplog.Dead{Key: k, Group: r.Group, Loc: r.Loc})
			if err := t.Remove(k, r.Group); err != nil {
				return err
			}
		}
	}
	return nil
}

// covered returns the records of a tail, if it has no children and block has all their rows, in records of this put; else none: a power
// cut may take what was put before, and leave this.
func (w *putter) covered(t *index.Txn, tail, block kv.Key, op *oplog.Put) ([]index.Entry, error) {
	if kids, err := t.HasChildren(tail); err != nil || kids {
		return nil, err
	}
	var records []index.Entry
	for g, group := range w.m.ms.desc.Groups {
		r, ok, err := t.Get(tail, uint8(g))
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		long, ok, err := t.Get(block, uint8(g))
		if err != nil {
			return nil, err
		}
		if !ok || group.Kind == kv.StateAt || !covers(long, r.RowFirst, r.RowFirst+r.RowCount) {
			return nil, nil
		}
		if !slices.ContainsFunc(op.Records, func(rec oplog.Record) bool { return rec.Key == block && rec.Group == uint8(g) }) {
			return nil, nil
		}
		records = append(records, r)
	}
	return records, nil
}

// needed reports whether a ref, or a lease other than this put's own, rests on block k.
func (w *putter) needed(k kv.Key) bool {
	w.e.stateMu.RLock()
	named := w.e.state.blocks[k] > 0
	w.e.stateMu.RUnlock()
	if named {
		return true
	}
	own := w.pins(k)
	return w.e.pins.Pinned(k, own)
}

// leave marks a tail, so that no match comes to rest on it any more, if none other than this put's own has.
func (w *putter) leave(k kv.Key) bool {
	own := w.pins(k)
	if !w.e.pins.Leave(k, own) {
		return false
	}
	w.left = append(w.left, k)
	return true
}

// pins is how often this put has pinned k.
func (w *putter) pins(k kv.Key) int {
	own := 0
	if w.pin == k {
		own++
	}
	if w.match != nil && slices.Contains(w.match.held.Rests, k) {
		own++
	}
	if slices.Contains(w.lent, k) {
		own++
	}
	return own
}

// moveOn lets this put, and the match that it extends, rest on the last block that was published, which is pinned.
func (w *putter) moveOn(last kv.Key) {
	w.unpin()
	w.pin = last
	if w.match != nil {
		w.match.held.MoveTo(w.e.pins, last)
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

func deadOf(batch []index.Entry) []oplog.Dead {
	out := make([]oplog.Dead, 0, len(batch))
	for _, entry := range batch {
		out = append(out, oplog.Dead{Key: entry.Key, Group: entry.Group, Loc: entry.Loc})
	}
	return out
}
