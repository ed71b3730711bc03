package chat

import (
	"context"
	"fmt"
	"sync"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Host holds conversations on one runtime. It hands out the runtime's sequences, and calls the runtime from one goroutine at a time. The
// methods of a host, its conversations and its turns are safe for concurrent use.
type Host struct {
	store *db.Store
	model *db.Model
	rt    Runtime
	lim   kv.Limits

	mu        sync.Mutex // guards the runtime and all fields below, those of conversations and turns included
	free      []int      // sequences that nobody has
	open      map[string]*Conversation
	turns     int // open turns of all conversations
	clock     uint64
	closed    bool
	tidier    bool // a goroutine rewrites logs between turns
	tidySlice int  // tokens that this goroutine computes at a time
	warms     []*warming
	warmBusy  bool // a Warm is computing, so no Warm gives its sequence back
	done      sync.WaitGroup
	stop      context.CancelFunc
	ctx       context.Context
	calm      func() // ends the host's part in db.Pressure
}

// Conversation is an open conversation. It has one open turn at a time.
type Conversation struct {
	h    *Host
	id   string
	o    Options
	file *db.Session
	head head
	log  *log

	evicted []TurnID // turns evicted since the last commit

	seq      int  // the sequence that holds the live rows of the log; -1: the cache has none
	rows     int  // leading tokens of the log that were computed; their rows are in seq or in the store
	stored   int  // leading tokens of the log whose rows are in the store
	hole     int  // the first row that is in neither; no row from here on can be stored. noHole: there is none
	bytes    int  // the size of the file, about
	fold     int  // the size at which the file is written anew
	stepping bool // a rewrite is computing
	urgent   bool // a caller waits for the rewrite
	turn     *Turn
	old      *aside // what the open turn replaces; nil: nothing
	re       *rewriting
	rewrite  string // why the log must be rewritten; empty: it need not be
	unstored bool   // the log is new, and its rows are not stored yet
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
	room     int        // tokens that fit
	seq      int        // the sequence with the view and the turn's own rows
	rows     int        // leading tokens that were decoded
	scores   []float32  // after the last row, if known
	known    bool
	ended    bool
	stats    TurnStats
	branches []*Branch
}

// Branch is a run of tokens on trial, after those of its turn. Promote adds them to the turn; Drop forgets them.
type Branch struct {
	t      *Turn
	seq    int
	tokens []kv.Token
	rows   int
	scores []float32
	gone   bool
}

// aside is what the open turn replaces. The file still has it. If the turn is not committed, the conversation gets it back.
type aside struct {
	log    *log
	id     TurnID // the first turn that is replaced
	start  int    // the position where that turn began
	placed []fact // facts that the new log has placed or removed; the frame of the open turn will say so
}

// rewriting is a new log. It is computed on its own sequence while turns go on in the old log.
type rewriting struct {
	log  *log
	seq  int
	rows int // leading tokens of the new log that were computed
	upto int // leading parts of the old log that the new one has taken up or left out
}

// warming has the sequence of a Warm, or -1. A turn may take that sequence away between two slices.
type warming struct{ seq int }

// enter locks the host for a method of an open conversation. With idle, no turn may be open.
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

// touch makes the conversation the one that was used last.
func (c *Conversation) touch() {
	c.h.clock++
	c.used = c.h.clock
}
