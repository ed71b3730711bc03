package chat

import (
	"context"
	"fmt"
	"sync"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Host holds conversations on one runtime: it hands out the runtime's sequences and calls it from one goroutine at a time. Its
// methods, and those of its conversations and turns, may be called from several.
type Host struct {
	store *db.Store
	model *db.Model
	rt    Runtime
	lim   kv.Limits

	mu        sync.Mutex // the runtime, and all that follows, conversations and turns included
	free      []int      // sequences
	open      map[string]*Conversation
	turns     int // open ones, of all conversations
	clock     uint64
	closed    bool
	tidier    bool // the goroutine that rewrites between turns is there
	tidySlice int  // what it computes at a time
	warms     []*warming
	warmBusy  bool // one of them is at work: none gives anything back
	done      sync.WaitGroup
	stop      context.CancelFunc
	ctx       context.Context
	calm      func() // takes the answer to db.Pressure out of the store
}

// Conversation is a conversation that is open. One turn of it is open at a time.
type Conversation struct {
	h    *Host
	id   string
	o    Options
	file *db.Session
	head head
	log  *log

	evicted []TurnID // turns that were evicted since the last turn was committed

	seq      int  // holds the rows of the log that are not gone; -1: they are not in the cache
	rows     int  // leading tokens of the log that were computed; they are stored or in seq
	stored   int  // leading tokens of the log whose rows are in the store
	hole     int  // where rows begin that are neither in seq nor in the store: nothing from here on can be stored. There is none: noHole
	bytes    int  // in the file, about
	fold     int  // with so many bytes it is written anew
	stepping bool // the rewrite is being computed,
	urgent   bool // and somebody waits for it
	turn     *Turn
	old      *aside // what the open turn takes the place of; nil: nothing
	re       *rewriting
	rewrite  string // why the log is to be rewritten; empty: it need not be
	unstored bool   // the rows of a new log are not stored yet
	failed   error  // of the last rewrite in the background
	used     uint64
	stats    Stats
	closed   bool
}

// Turn is a message and its answer while it is computed. It ends with Commit or Abort.
type Turn struct {
	c        *Conversation
	part     part
	tokens   []kv.Token // message and answer
	room     int        // tokens that it may have
	seq      int        // its view, and its own rows
	rows     int        // leading tokens that were decoded
	scores   []float32  // after the last row
	known    bool       // scores are those
	ended    bool
	stats    TurnStats
	branches []*Branch
}

// Branch is tokens that are decoded on trial, after those that its turn has. It is promoted, with which its turn goes on, or dropped.
type Branch struct {
	t      *Turn
	seq    int
	tokens []kv.Token
	rows   int
	scores []float32
	gone   bool
}

// aside is what the open turn takes the place of. The file has it still, and the conversation has it again if the turn is not committed.
type aside struct {
	log    *log
	id     TurnID // the first turn that is taken back
	start  int    // where it began
	placed []fact // facts that were placed, or removed, in the new log: its turn's frame says so
}

// rewriting is a new log that is computed on a sequence of its own, while turns go on in the old one.
type rewriting struct {
	log  *log
	seq  int
	rows int // of the new log, that were computed
	upto int // parts of the old log that are in the new one, or need not be
}

// warming is the sequence of a Warm; -1 if it has none: a turn that needs it takes it between two slices.
type warming struct{ seq int }

// enter locks the host for a method that needs the conversation as it is between turns.
func (c *Conversation) enter(idle bool) (leave func(), err error) {
	c.h.mu.Lock()
	switch {
	case c.closed || c.h.closed:
		err = ErrClosed
	case idle && c.turn != nil:
		err = ErrTurnOpen
	default:
		c.touch()
		return c.h.mu.Unlock, nil
	}
	c.h.mu.Unlock()
	return nil, err
}

// enter locks the host for a method of an open turn.
func (t *Turn) enter() (leave func(), err error) {
	mu := &t.c.h.mu
	mu.Lock()
	switch {
	case t.ended:
		mu.Unlock()
		return nil, ErrTurnEnded
	case len(t.branches) > 0:
		mu.Unlock()
		return nil, fmt.Errorf("%w: promote one of the turn's branches, or drop them all, before the turn goes on", ErrBranch)
	}
	t.c.touch()
	return mu.Unlock, nil
}

func (c *Conversation) touch() {
	c.h.clock++
	c.used = c.h.clock
}
