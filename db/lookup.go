package db

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// lookup is the search for one prompt's longest stored prefix, and what it found. A search reads O(log blocks) index
// entries: which blocks there are follows from closure; where they lie is asked for when somebody wants to know. Pooled.
type lookup struct {
	e     *engine
	m     *modelState
	p     *kv.Prompt
	chain kv.Chain
	limit int  // positions from limit on are not asked for
	exact bool // for a put, which wants rows up to limit: prefixes of any length count, however little they are worth

	view  index.View
	views int          // users of view
	bloom *index.Bloom // the filter of that time: a later one does not know what was removed since. nil: maybe

	hits   []hit
	groups []groupHit // of all hits, a model's groups for each
	ends   Reason     // why there are no more hits
	hashes []byte     // token hashes, a buffer

	jobs []restoreJob

	tokens int        // the largest usable P
	reason Reason     // why not more
	states []stateHit // the states at P, one for each StateAt group
	broken []stateHit // states that turned out to be bad
}

// hit is one stored block of a matched prefix. Hits are the chain's blocks from the first on; the last one may be another
// prompt's block, of which the first rows are shared.
type hit struct {
	key, parent kv.Key
	scope       kv.ScopeID
	start, end  int        // positions that it gives: a partial hit ends before the stored block does
	tokens      int        // of the stored block
	groups      []groupHit // nil until the index was asked
}

// groupHit is the record of one group of a block. A zero loc.Length means that it is not stored.
type groupHit struct {
	loc                index.Loc
	rowFirst, rowCount int // relative to the block's start
	bad                error
}

// stateHit is a stored state that is valid at exactly position at.
type stateHit struct {
	at          int
	group       int
	key, parent kv.Key
	scope       kv.ScopeID
	start       int // of the block
	loc         index.Loc
	bad         error
}

var lookups = sync.Pool{New: func() any { return new(lookup) }}

// newLookup prepares a search. Give it back with free.
func (m *modelState) newLookup(e *engine, p *kv.Prompt, limit int, exact bool) *lookup {
	l := lookups.Get().(*lookup)
	l.e, l.m, l.p, l.limit, l.exact = e, m, p, limit, exact
	return l
}

// free gives l back; it must not be used any more.
func (l *lookup) free() {
	l.reset()
	l.e, l.m, l.p = nil, nil, nil
	if cap(l.hits) <= 1<<14 {
		lookups.Put(l)
	}
}

// reset forgets what was found.
func (l *lookup) reset() {
	clear(l.hits)
	clear(l.groups)
	clear(l.states)
	clear(l.broken)
	clear(l.jobs)
	l.hits, l.groups, l.states, l.broken = l.hits[:0], l.groups[:0], l.states[:0], l.broken[:0]
	l.tokens, l.ends, l.reason = 0, Reason{}, Reason{}
}

// open takes a version of the index, until close. Uses nest.
func (l *lookup) open() {
	if l.views++; l.views > 1 {
		return
	}
	l.bloom = l.e.look(&l.view)
}

// look gives v the current version of the index, and returns the Bloom filter that knows all of it; nil: maybe.
func (e *engine) look(v *index.View) *index.Bloom {
	for {
		b := e.bloom.Load()
		if e.ix.Look(v); e.bloom.Load() == b {
			return b
		}
		v.Release()
	}
}

func (l *lookup) close() {
	if l.views--; l.views == 0 {
		l.view.Release()
		l.bloom = nil
	}
}

// Errors that mark a group of a hit as unusable.
var (
	errGone      = fmt.Errorf("deleted or evicted: %w", segments.ErrDestroyed)
	errCollision = fmt.Errorf("%w: the key belongs to another prefix", ErrCorrupt)
	// errFlagged is why a block is skipped that was found damaged before.
	errFlagged = fmt.Errorf("%w, as was found earlier; a put of the same prefix replaces it", ErrCorrupt)
)

// reasonOf turns what a record's read returned, or what marks a hit, into a reason.
func reasonOf(err error, at int) Reason {
	switch {
	case errors.Is(err, errCollision):
		return Reason{Code: Collision, At: at, Err: err}
	case errors.Is(err, segments.ErrDestroyed):
		return Reason{Code: Gone, At: at, Err: err}
	}
	return Reason{Code: Damaged, At: at, Err: err}
}

// addHit appends block i of the chain.
func (l *lookup) addHit(i int) *hit {
	start, end := l.chain.Block(i)
	l.hits = append(l.hits, hit{
		key: l.chain.Key(i), parent: l.chain.Parent(i), scope: l.chain.Scope(i),
		start: start, end: min(end, l.limit), tokens: end - start,
	})
	return &l.hits[len(l.hits)-1]
}

// same compares what an index entry says about a block with what it must be.
func (l *lookup) same(e *index.Entry, h *hit) bool {
	return e.Model == l.m.Fingerprint && e.Parent == h.parent && e.Scope == h.scope && int(e.First) == h.start && int(e.Tokens) == h.tokens
}

// resolve asks the index where the records of a hit lie. What it has not, or has otherwise, marks group 0 as bad. The error
// is one of the index.
func (l *lookup) resolve(i int) error {
	h := &l.hits[i]
	if h.groups != nil {
		return nil
	}
	l.open()
	defer l.close()
	entry, ok, err := l.view.Get(h.key, 0)
	if err != nil {
		return err
	}
	if !ok {
		l.groupsOf(i)[0].bad = errGone
		return nil
	}
	return l.resolveAs(i, &entry)
}

// resolveAs is resolve for a hit whose entry is known.
func (l *lookup) resolveAs(i int, entry *index.Entry) error {
	h := &l.hits[i]
	groups := l.groupsOf(i)
	switch {
	case !l.same(entry, h):
		l.e.count.collisions.Add(1)
		groups[0].bad = errCollision
		return nil
	case entry.Flags&index.FlagDamaged != 0:
		groups[0].bad = errFlagged
		return nil
	}
	groups[0] = groupHit{loc: entry.Loc, rowCount: int(entry.Tokens)}
	for g := 1; g < len(groups); g++ {
		if l.m.desc.Groups[g].Kind != kv.Window {
			continue
		}
		ge, ok, err := l.view.Get(h.key, uint8(g))
		if err != nil {
			h.groups = nil
			return err
		}
		if ok && ge.Flags&index.FlagDamaged != 0 {
			groups[g].bad = errFlagged
		} else if ok {
			groups[g] = groupHit{loc: ge.Loc, rowFirst: int(ge.RowFirst), rowCount: int(ge.RowCount)}
		}
	}
	return nil
}

// groupsOf gives hit i its empty groups.
func (l *lookup) groupsOf(i int) []groupHit {
	n := len(l.m.desc.Groups)
	if need := (i + 1) * n; need > len(l.groups) {
		// Hits point into the old array where it grows: what they have stays there.
		l.groups = slices.Grow(l.groups, need-len(l.groups))[:need]
	}
	groups := l.groups[i*n : (i+1)*n : (i+1)*n]
	clear(groups)
	l.hits[i].groups = groups
	return groups
}

// resolveTo resolves every hit that begins before position p.
func (l *lookup) resolveTo(p int) error {
	l.open()
	defer l.close()
	for i := range l.hits {
		if l.hits[i].start >= p {
			break
		}
		if err := l.resolve(i); err != nil {
			return err
		}
	}
	return nil
}

// endAt drops what was found from position p on.
func (l *lookup) endAt(p int) {
	for i := range l.hits {
		h := &l.hits[i]
		if h.start >= p {
			l.hits = l.hits[:i]
			return
		}
		h.end = min(h.end, p)
	}
}

// covers returns the positions that the record of a resolved hit has rows for.
func (h *hit) covers(g int) (start, end int) {
	r := &h.groups[g]
	if r.loc.Length == 0 || r.bad != nil {
		return h.start, h.start
	}
	return h.start + r.rowFirst, min(h.start+r.rowFirst+r.rowCount, h.end)
}

// rests returns the blocks that the usable prefix rests on: the one that holds its last token and, where that is another,
// the one with its state. Everything before them is kept by closure.
func (l *lookup) rests(keys []kv.Key) []kv.Key {
	for i := len(l.hits) - 1; i >= 0; i-- {
		if l.hits[i].start < l.tokens {
			keys = append(keys, l.hits[i].key)
			break
		}
	}
	for i := range l.states {
		if s := &l.states[i]; s.at == l.tokens && l.tokens > 0 && !slices.Contains(keys, s.key) {
			keys = append(keys, s.key)
		}
	}
	return keys
}

// still reports whether a block is stored, and what was found of it lies where it lay.
func (l *lookup) still(v *index.View, k kv.Key) (bool, error) {
	if _, ok, err := v.Get(k, 0); !ok || err != nil {
		return false, err
	}
	lies := func(group int, at index.Loc) (bool, error) {
		x, ok, err := v.Get(k, uint8(group))
		return ok && x.Loc == at, err
	}
	for i := range l.hits {
		if l.hits[i].key != k {
			continue
		}
		for g, x := range l.hits[i].groups {
			if x.loc.Length == 0 {
				continue
			}
			if ok, err := lies(g, x.loc); !ok || err != nil {
				return false, err
			}
		}
	}
	for _, s := range l.states {
		if s.key != k {
			continue
		}
		if ok, err := lies(s.group, s.loc); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}
