package prefix

import (
	"sync"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// Lookup is the search for one prompt's longest stored prefix, and what it found. A search does not ask the index about every block:
// that they are stored follows from closure. [Lookup.Resolve] asks where the records of one lie. Not safe for concurrent use. Pooled:
// end its use with Free.
type Lookup struct {
	store  *Store
	model  Model
	prompt *kv.Prompt
	chain  kv.Chain
	limit  int  // positions from limit on are not asked for
	exact  bool // a put wants the rows up to limit: prefixes of any length count, however little they are worth

	view  index.View
	views int          // users of view
	bloom *index.Bloom // the filter that knows all of view: a later one does not know what was removed since. nil: maybe

	// Hits are the chain's blocks from the first on. The last one may be another prompt's block that begins with the same tokens.
	Hits   []Hit
	groups []Group   // of all hits, a model's groups for each
	ends   kv.Reason // why there are no more hits
	hashes []byte    // token hashes, a buffer
	fresh  []int     // hits that ResolveHeld resolves, a buffer

	Tokens int       // the usable prefix: of the first Tokens tokens, all that each group needs is stored
	Reason kv.Reason // why not more
	States []State   // the states that are valid behind Tokens tokens, one for each StateAt group
	found  []State   // States as Find left them
	broken []State   // states that turned out to be bad
}

// Hit is a stored block that gives rows of the prefix: those of the positions from Start to End.
type Hit struct {
	Key, Parent kv.Key
	Scope       kv.ScopeID
	Start, End  int     // a hit that gives only its first rows ends before the stored block does
	Tokens      int     // of the stored block
	Uses        uint32  // matches that ended in it, as far as the index knows; of a resolved hit
	Groups      []Group // its records, a group each; nil until the hit is resolved
}

// Group is the record that a block has of one group. A zero Loc.Length means that it has none.
type Group struct {
	Loc                index.Loc
	RowFirst, RowCount int   // the rows that the record has, relative to the block's start
	Bad                error // why it cannot be used
}

// State is a stored state. It is valid behind exactly the first At tokens.
type State struct {
	At          int
	Group       int
	Key, Parent kv.Key // of the block that it lies beside
	Scope       kv.ScopeID
	Start       int // of the block
	Loc         index.Loc
	Bad         error // why it cannot be used
}

var lookups = sync.Pool{New: func() any { return new(Lookup) }}

// Lookup prepares a search for a prefix of at most limit tokens. exact: prefixes of fewer than kv.OpeningTokens tokens count, too, and a
// block that a longer one took the place of counts only if it reaches limit. The prompt must not change until Free.
func (s *Store) Lookup(m Model, p *kv.Prompt, limit int, exact bool) *Lookup {
	l := lookups.Get().(*Lookup)
	l.store, l.model, l.prompt, l.limit, l.exact = s, m, p, limit, exact
	return l
}

// Free ends the use of l.
func (l *Lookup) Free() {
	l.Reset()
	l.store, l.model, l.prompt = nil, Model{}, nil
	if cap(l.Hits) <= 1<<14 {
		lookups.Put(l)
	}
}

// Reset forgets what was found.
func (l *Lookup) Reset() {
	clear(l.Hits)
	clear(l.groups)
	clear(l.States)
	clear(l.found)
	clear(l.broken)
	l.Hits, l.groups, l.States, l.found, l.broken = l.Hits[:0], l.groups[:0], l.States[:0], l.found[:0], l.broken[:0]
	l.Tokens, l.ends, l.Reason = 0, kv.Reason{}, kv.Reason{}
}

// open takes a version of the index, until close. Uses nest.
func (l *Lookup) open() {
	if l.views++; l.views > 1 {
		return
	}
	l.bloom = l.store.Look(&l.view)
}

func (l *Lookup) close() {
	if l.views--; l.views == 0 {
		l.view.Release()
		l.bloom = nil
	}
}

// CutAt drops what was found from position p on. With limit, nothing from there on is asked for any more.
func (l *Lookup) CutAt(p int, limit bool) {
	if limit {
		l.limit = p
	}
	for i := range l.Hits {
		h := &l.Hits[i]
		if h.Start >= p {
			l.Hits = l.Hits[:i]
			return
		}
		h.End = min(h.End, p)
	}
}

// SetBroken says that a state could not be used when it was read. The next [Lookup.Measure] does without it.
func (l *Lookup) SetBroken(s *State, why error) {
	s.Bad = why
	l.broken = append(l.broken, *s)
}

// Model is the model that was searched.
func (l *Lookup) Model() *Model { return &l.model }

// Prompt is the prompt that was looked for.
func (l *Lookup) Prompt() *kv.Prompt { return l.prompt }
