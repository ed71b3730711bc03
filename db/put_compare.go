package db

import (
	"errors"
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// A put takes a block that is stored under one of its keys for a part of its prompt only after it compared the tokens: what is
// put below another prompt's block would be found by whoever has that prompt. It notes where each block that it compared, or
// wrote, lies. As long as that is what the index says, the block was not removed meanwhile, nor, since blocks are removed with
// all that hangs below them, any before it.

// childReader is what comparing needs of a View or a Txn.
type childReader interface {
	Get(k kv.Key, group uint8) (index.Entry, bool, error)
	ChildrenLike(parent kv.Key, scope kv.ScopeID, hashes []byte, fn func(child kv.Key) bool) error
	HasChildren(parent kv.Key) (bool, error)
}

// compareFirst compares the first n blocks of the chain, up to one that may have to be replaced, but for those that an earlier put
// has compared with the same tokens. It returns how many there are.
func (w *putter) compareFirst(v *index.View, n int) (int, error) {
	model, blockTokens := w.m.ms.Fingerprint, w.m.ms.desc.BlockTokens
	was := w.e.compared.of(model, &w.p, blockTokens)
	fresh := 0
	for i := range n {
		k := w.chain.Key(i)
		x, ok, err := v.Get(k, 0)
		if err != nil {
			return 0, err
		}
		if !ok || w.e.doubtful(k) {
			n = i
			break
		}
		if i < len(was) && was[i] == x.Loc {
			w.seen[i] = x.Loc
			continue
		}
		err = w.compare(v, i, x)
		if w.broke(x) {
			n = i
		}
		if err != nil {
			return 0, err
		}
		if n == i {
			break
		}
		fresh++
	}
	if fresh > n/8 && !w.unread { // so that a long prompt is not copied for each block that is added to it
		w.e.compared.keep(model, &w.p, blockTokens, slices.Clone(w.seen[:n]))
	}
	return n, nil
}

// compare fails if x, which v has under the key of block i, is not a block of this prompt.
func (w *putter) compare(v childReader, i int, x index.Entry) error {
	w.broken = nil
	if w.seen[i] == x.Loc {
		return nil
	}
	start, end := w.chain.Block(i)
	parent, scope := w.chain.Parent(i), w.chain.Scope(i)
	same := x.Model == w.m.ms.Fingerprint && x.Parent == parent && x.Scope == scope && int(x.First) == start && int(x.Tokens) == end-start
	if same {
		err := w.e.set.Read(segLoc(x.Loc), func(r *segments.Record) error {
			if r.Key() != x.Key || r.Group() != 0 {
				return errElsewhere
			}
			same = r.Model() == w.m.ms.Fingerprint && r.Parent() == parent && r.Scope() == scope && r.TokenCount() == end-start && r.MatchTokens(&w.p, start) == end-start
			return nil
		})
		if err != nil {
			w.unread, w.broken = true, err
			if same, err = w.compareHashes(v, i, x, err); err != nil {
				return err
			}
		}
	}
	if !same {
		w.e.count.collisions.Add(1)
		return &NotStoredError{Stored: start, Needed: end, Reason: Reason{Code: Collision, At: start, Err: errCollision}}
	}
	w.seen[i] = x.Loc
	return nil
}

// broke reports whether the record of x, which was just compared, could not be read because it is damaged, and flags it: then it is to
// be stored anew. The caller holds no lock.
func (w *putter) broke(x index.Entry) bool {
	if w.broken == nil || passing(w.broken) {
		return false
	}
	w.e.reportDamage(x.Key, x.Group, x.Loc, w.broken)
	w.broken = nil
	return true
}

// whole reports whether the record of x, which has rows that the caller of this put has, too, is there, as far as its header says; one
// that is not is flagged. What cannot be read just now is taken to be whole. The caller holds no lock.
func (w *putter) whole(x index.Entry) bool {
	w.broken = w.e.set.Read(segLoc(x.Loc), func(r *segments.Record) error {
		if r.Key() != x.Key || r.Group() != x.Group {
			return errElsewhere
		}
		return nil
	})
	return !w.broke(x)
}

// errElsewhere says that the index names a place where another record lies.
var errElsewhere = errors.New("another record lies there")

// compareHashes is compare for a block that cannot be read: the index has two bytes of a seeded hash of each of its first tokens. A
// block of more tokens is not known by them. It makes way if nothing hangs below it; else see makeWay.
func (w *putter) compareHashes(v childReader, i int, x index.Entry, unread error) (same bool, err error) {
	start, end := w.chain.Block(i)
	known := min(end, start+index.MaxHashTokens)
	hashes := w.e.hasher.AppendTokenHashes(nil, &w.p, start, known)
	if err := v.ChildrenLike(x.Parent, x.Scope, hashes, func(k kv.Key) bool {
		same = same || k == x.Key
		return !same
	}); err != nil || !same || known == end {
		return same, err
	}
	switch kids, err := v.HasChildren(x.Key); {
	case err != nil:
		return false, err
	case passing(unread):
		return false, unread
	case kids || x.Flags&index.FlagDamaged == 0:
		return false, &NotStoredError{Stored: start, Needed: end, Reason: reasonOf(&unknownTokens{x.Key, x.Loc, unread}, start)}
	}
	return true, nil
}

// follows fails if the block that block i hangs from is not the one that was compared. One that is not published yet is compared
// then.
func (w *putter) follows(v childReader, i int) error {
	if i == 0 {
		return nil
	}
	loc := w.seen[i-1]
	if loc == (index.Loc{}) {
		return nil
	}
	if x, stored, err := v.Get(w.chain.Parent(i), 0); err != nil || !stored || x.Loc != loc {
		return errors.Join(err, w.gone(i))
	}
	return nil
}
