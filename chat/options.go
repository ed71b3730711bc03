package chat

import (
	"context"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/kv"
)

// Options configure a conversation. The zero value has no system prompt.
type Options struct {
	// System is the system prompt. Nil keeps that of a conversation that exists. Another one replaces it, and the next turn begins with a rewrite.
	System []kv.Token
	// User owns the system prompt. All conversations of one user share its rows, and [Host.Delete] of the last one deletes them. Empty: all
	// conversations of the store share them. User is fixed when a conversation is made.
	User string

	// Facts bounds the tokens of the system prompt and the facts, and Ring those of the turns in the cache. 0: 512 and 1,536. The defaults are less if
	// the model was trained for less, or the runtime has less than twice as many cells. If they are smaller than last time, turns are evicted, and
	// Open returns [ErrFactsFull] if the facts do not fit.
	Facts   int
	Ring    int
	Reserve int    // tokens that are kept free for the answer when a turn begins. 0: 512, or a third of Ring if that is less
	Log     int    // tokens of the log, hidden and evicted ones included, after which it is rewritten. 0: four times Facts and Ring
	Policy  Policy // which turns a turn attends to. nil: All
	Merge   MergeFunc
}

// MergeFunc returns fewer or shorter facts, with at most room tokens together. SetFact calls it when facts no longer fit. It may use the host's other
// conversations. A fact that it returns with other tokens replaces the one of that name. A fact whose name it leaves out is removed.
type MergeFunc func(ctx context.Context, facts []Fact, room int) ([]Fact, error)

// Fact is a named run of tokens that every turn attends to.
type Fact struct {
	Name   string
	Tokens []kv.Token
}

// maxTokens bounds Facts and Ring.
const maxTokens = kv.MaxTokens / 16

func (o *Options) defaults(lim kv.Limits) error {
	facts, ring := 512, 1536
	if lim.Trained > 0 {
		facts = max(1, min(facts, lim.Trained/4))
		ring = max(2, min(ring, lim.Trained-max(o.Facts, facts)))
	}
	if half := lim.Cells / 2; lim.Cells > 0 { // a rewrite needs the other half
		facts = max(1, min(facts, half/4, lim.Cells-max(0, o.Ring)))
		ring = max(2, min(ring, max(half/4, half-max(o.Facts, facts))))
	}
	for _, f := range []struct {
		name string
		n    *int
		def  int
	}{{"Facts", &o.Facts, facts}, {"Ring", &o.Ring, ring}, {"Reserve", &o.Reserve, 0}} {
		if *f.n < 0 || *f.n > maxTokens {
			return fmt.Errorf("%w: %s is %d: at most %d", ErrOptions, f.name, *f.n, maxTokens)
		}
		if *f.n == 0 {
			*f.n = f.def
		}
	}
	if o.Reserve == 0 {
		o.Reserve = max(1, min(512, o.Ring/3))
	}
	if o.Reserve >= o.Ring {
		return fmt.Errorf("%w: Reserve is %d, and Ring, which has room for the message, too, %d", ErrOptions, o.Reserve, o.Ring)
	}
	for _, most := range []struct {
		n    int
		what string
	}{{lim.Trained, "the model was trained for %d positions"}, {lim.Cells, "the runtime was made with %d cells"}} {
		if most.n > 0 && o.Facts+o.Ring > most.n {
			return fmt.Errorf("%w: Facts is %d and Ring %d, and "+most.what, ErrOptions, o.Facts, o.Ring, most.n)
		}
	}
	if len(o.System) > o.Facts {
		return fmt.Errorf("%w: a system prompt of %d tokens, and Facts is %d", ErrOptions, len(o.System), o.Facts)
	}
	switch {
	case o.Log < 0:
		return fmt.Errorf("%w: Log is %d", ErrOptions, o.Log)
	case o.Log == 0:
		o.Log = 4 * (o.Facts + o.Ring)
	}
	o.Log = min(o.Log, kv.MaxTokens/2)
	if o.Policy == nil {
		o.Policy = All
	}
	o.System = slices.Clone(o.System)
	return nil
}
