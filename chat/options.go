package chat

import (
	"context"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/kv"
)

// Options say how a conversation is held. The zero value is a conversation without a system prompt.
type Options struct {
	// System is the system prompt. That of a conversation that exists is kept if it is nil, and changed if it is another one: the next turn
	// begins with a rewrite.
	System []kv.Token
	// User is whose the system prompt is: its rows are shared by all conversations of one user, and go with the last of them ([Host.Delete]).
	// Empty: by all. It is fixed when a conversation is made.
	User string

	// Facts is how many tokens the system prompt and the facts may take, Ring how many the turns in the cache may. 0: 512 and 1,536, less if
	// the model was trained for less, or the runtime has less than twice as many cells. Where they are smaller than when the conversation was held last, turns are evicted, and Open returns
	// [ErrFactsFull] if the facts have no room.
	Facts   int
	Ring    int
	Reserve int    // tokens of an answer that are kept free when a turn begins. 0: 512, or a third of Ring if that is less
	Log     int    // tokens that the log may have before it is rewritten, what was hidden or evicted included. 0: four times Facts and Ring
	Policy  Policy // which turns a turn attends to. nil: All
	Merge   MergeFunc
}

// MergeFunc makes fewer or shorter facts of those that there are, whose tokens may be at most room afterwards. It is called by SetFact when
// facts no longer fit, and may use the host's other conversations. A fact that it returns under a known name with other tokens replaces it;
// one whose name it leaves out is removed.
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
	if half := lim.Cells / 2; lim.Cells > 0 { // the other half is a rewrite's
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
