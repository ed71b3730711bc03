package slots

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// Server says what a table must know of the server.
type Server struct {
	ByKey   bool // requests of different API keys share no slot
	Watched bool // slots change without the front: others use the server, or a router starts and ends it
}

// Table is what the front knows of the slots of a server. Safe for concurrent use.
type Table struct {
	server Server
	turn   chan struct{}

	mu       sync.Mutex
	list     []*Slot
	usable   int // slots from here on are gone
	queue    []*waiter
	foreign  int            // requests at work in slots that the front did not choose
	passages int            // how often one began or ended
	passing  map[string]int // and whose they are, by scope, where requests are kept apart by their keys
}

// New returns a table without slots.
func New(s Server) *Table {
	return &Table{server: s, turn: make(chan struct{}, 1), passing: map[string]int{}}
}

// Turn is the right to do something to slots.
type Turn struct {
	of    *Table
	given bool
}

// Take waits for the turn. What is done to slots, and every request that begins to work in one, goes through it: a server whose slots share a cache clears
// the idle ones when a request begins.
func (t *Table) Take(ctx context.Context) (*Turn, error) {
	select {
	case t.turn <- struct{}{}:
		return &Turn{of: t}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Give gives the turn to the next one. Giving it twice is the same as once.
func (u *Turn) Give() {
	if !u.given {
		u.given = true
		<-u.of.turn
	}
}

// InTurn reports whether somebody has the turn.
func (t *Table) InTurn() bool { return len(t.turn) > 0 }

// Resize says how many slots the server has.
func (t *Table) Resize(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.usable = n
	for i := len(t.list); i < n; i++ {
		t.list = append(t.list, &Slot{ID: i})
	}
	t.grant()
}

// waiter is a request that waits for a slot.
type waiter struct {
	prompt kv.Prompt
	slot   chan *Slot
}

// Lease waits for a slot: the one that holds most of the prompt, or the one that was not used for longest. Requests get theirs in
// the order in which they came.
func (t *Table) Lease(ctx context.Context, prompt kv.Prompt) (*Slot, error) {
	w := &waiter{prompt: prompt, slot: make(chan *Slot, 1)}
	t.mu.Lock()
	t.queue = append(t.queue, w)
	t.grant()
	t.mu.Unlock()
	select {
	case sl := <-w.slot:
		return sl, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = slices.DeleteFunc(t.queue, func(x *waiter) bool { return x == w })
	select {
	case sl := <-w.slot:
		sl.Busy = false
		t.grant()
	default:
	}
	return nil, ctx.Err()
}

// Release gives a slot back.
func (t *Table) Release(sl *Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sl.Busy, sl.Working, sl.slow, sl.Ended = false, false, false, time.Now()
	t.grant()
}

// grant hands idle slots to those who wait. The caller holds mu.
func (t *Table) grant() {
	for len(t.queue) > 0 {
		sl := t.best(t.queue[0].prompt)
		if sl == nil {
			return
		}
		sl.Busy, sl.used = true, time.Now()
		t.queue[0].slot <- sl
		t.queue = t.queue[1:]
	}
}

// best is the idle slot for a prompt. A prompt that shares less than half of what a slot holds, a system prompt, say, belongs to another
// conversation: the slot is left to that one as long as there are others. The caller holds mu.
func (t *Table) best(prompt kv.Prompt) (best *Slot) {
	shared := 0
	for _, sl := range t.list {
		if sl.Busy || sl.ID >= t.usable {
			continue
		}
		n := Common(sl.Prompt, prompt)
		if 2*n < len(sl.Prompt.Tokens) {
			n = 0
		}
		switch {
		case best == nil, n > shared, n == shared && sl.used.Before(best.used):
			best, shared = sl, n
		}
	}
	return best
}

// Slots returns a copy of all slots.
func (t *Table) Slots() (out []Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sl := range t.list {
		out = append(out, *sl)
	}
	return out
}

// Of returns a copy of a slot.
func (t *Table) Of(sl *Slot) Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return *sl
}

// Unbusy waits until no slot is leased.
func (t *Table) Unbusy(ctx context.Context) {
	for slices.ContainsFunc(t.Slots(), func(sl Slot) bool { return sl.Busy }) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Forget says that nothing is known of some slots any more.
func (t *Table) Forget(slots ...*Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sl := range slots {
		sl.forget()
	}
}

// ForgetAll says that nothing is known of any slot.
func (t *Table) ForgetAll() { t.forgetIf(func(*Slot) bool { return true }) }

// ForgetIdle says that nothing is known of the slots that nobody has leased.
func (t *Table) ForgetIdle() { t.forgetIf(idle) }

// ForgetSaved says that nothing is known of the slots that nobody has leased and that are stored.
func (t *Table) ForgetSaved() { t.forgetIf(saved) }

func idle(sl *Slot) bool { return !sl.Busy }

func saved(sl *Slot) bool { return !sl.Busy && !sl.Unsaved }

func (t *Table) forgetIf(which func(*Slot) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sl := range t.list {
		if which(sl) {
			sl.forget()
		}
	}
}

// Passes counts a request that works in slots which nobody here knows, until it ends. Nothing is known of idle slots afterwards.
func (t *Table) Passes(scope string) (ended func()) {
	t.pass(scope, 1, idle)
	return func() { t.pass(scope, -1, saved) }
}

func (t *Table) pass(scope string, n int, forgotten func(*Slot) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.foreign += n
	t.passages++
	if t.server.ByKey {
		if t.passing[scope] += n; t.passing[scope] == 0 {
			delete(t.passing, scope)
		}
	}
	for _, sl := range t.list {
		if forgotten(sl) {
			sl.forget()
		}
	}
}

// Foreign reports whether requests are at work whose slots the front did not choose.
func (t *Table) Foreign() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.foreign > 0
}

// Alone reports whether nobody but the front has used the server since the slot's last request began.
func (t *Table) Alone(sl *Slot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.server.Watched && t.foreign == 0 && t.passages == sl.foreign
}
