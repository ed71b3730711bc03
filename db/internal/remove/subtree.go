package remove

import (
	"errors"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// removal is what a deletion removes: the subtrees of the blocks that pick names, with the refs on them, and the refs to what is not stored any more
// that named says yes to. pick may leave out what is behind more blocks than a frame has.
type removal struct {
	pick  func(t *index.Txn) ([]kv.Key, error)
	named func(*oplog.Ref) bool

	// Where the last frame was full: the next one goes on there, not at the root of a long chain.
	root kv.Key
	way  []level
	// Of blocks with more children than a frame removes, how far they have gone: what went before is passed once more only, in the end.
	passed map[kv.Key]index.ChildPos

	gone []removed // by the last frame
}

// removed is a block that was taken out, with so many records.
type removed struct {
	key, parent kv.Key
	records     int
}

// level are blocks with one parent on a deletion's way down. The last of each is an ancestor of all levels that follow, and those before it
// are for later.
type level struct {
	keys []kv.Key
	dead int // records that were removed before, in this frame; -1: not known
}

// holding returns the blocks that hold the prompt's last token, after the same prefix: the block of the chain itself, and
// every stored block that goes on differently after it.
func (r *Remover) holding(m *catalog.Model, t *index.Txn, p *kv.Prompt) ([]kv.Key, error) {
	chain := r.Hasher.Chain(m.Fingerprint, m.Desc.BlockTokens, p)
	n := len(p.Tokens)
	if n == 0 {
		return nil, nil
	}
	last := chain.Len() - 1
	start, _ := chain.Block(last)
	hashes := r.Hasher.AppendTokenHashes(nil, p, start, n)
	var keys []kv.Key
	err := t.ChildrenLike(chain.Parent(last), chain.Scope(last), hashes, func(k kv.Key) bool {
		keys = append(keys, k)
		return true
	})
	if err != nil {
		return nil, err
	}
	// Two bytes a token are a hint: compare the tokens.
	var failed error
	keys = slices.DeleteFunc(keys, func(k kv.Key) bool {
		entry, ok, err := t.Get(k, 0)
		if err != nil || !ok {
			failed = errors.Join(failed, err) // what is not known to be gone is not deleted
			return true
		}
		shared, err := r.Search.SharedTokens(p, entry)
		if read.Passing(err) { // it may be another prompt's
			failed = errors.Join(failed, err)
		}
		return err == nil && start+shared < n
	})
	return keys, failed
}

// removeSubtree removes block k and everything below it, deepest first; more says that op is full before that is done.
func (r *Remover) removeSubtree(c *commit.Change, k kv.Key, what *removal, op *oplog.Remove, out *Deleted) (more bool, err error) {
	way := what.way
	if what.way = nil; len(way) == 0 || what.root != k {
		way = []level{{keys: []kv.Key{k}, dead: -1}}
	}
	for i := range way { // others may have put below them since, and the last frame may not have been written
		way[i].dead = -1
	}
	what.root = k
	empty := false // what is below the block has been removed, or cannot be
	for len(way) > 0 {
		at := &way[len(way)-1]
		if len(at.keys) == 0 {
			empty = at.dead == len(op.Dead)
			way = way[:len(way)-1]
			continue
		}
		if len(op.Dead) >= removeBatch {
			what.way = way
			return true, nil
		}
		k := at.keys[len(at.keys)-1]
		if !empty {
			below, err := what.someChildren(c.Index, k)
			if err != nil {
				return false, err
			}
			if len(below) > 0 {
				way = append(way, level{below, len(op.Dead)})
				continue
			}
		}
		empty = false
		at.keys = at.keys[:len(at.keys)-1]
		block, ok, err := c.Index.Get(k, 0)
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		dead, bytes, err := c.RemoveBlock(block)
		if err != nil {
			return false, err
		}
		delete(what.passed, k)
		what.gone = append(what.gone, removed{block.Key, oplog.Before(block), len(dead)})
		op.Dead = append(op.Dead, dead...)
		out.Blocks++
		out.Bytes += bytes
	}
	return false, nil
}

// someChildren are children of a block that are still there: where there are many, as many as one frame removes.
func (w *removal) someChildren(t *index.Txn, k kv.Key) (keys []kv.Key, err error) {
	some := func(from index.ChildPos) (first index.ChildPos, err error) {
		err = t.Children(k, &from, func(child kv.Key, _ kv.ScopeID) bool {
			keys = append(keys, child)
			return len(keys) < removeBatch
		})
		return from, err
	}
	from, known := w.passed[k]
	first, err := some(from)
	if known && err == nil && len(keys) == 0 { // in front of it there is what was put since
		delete(w.passed, k)
		first, err = some(index.ChildPos{})
	}
	if len(keys) == removeBatch {
		if w.passed == nil {
			w.passed = map[kv.Key]index.ChildPos{}
		}
		w.passed[k] = first
	}
	return keys, err
}
