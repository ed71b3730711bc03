package db

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
)

// MatchOptions say how far to look.
type MatchOptions struct {
	// Limit is the largest prefix that is wanted, in tokens. 0: the whole prompt. A runtime that needs to evaluate the
	// last token for its logits asks for len(prompt)-1.
	Limit int
	// NoLookup matches nothing: the request wants to be computed anew. Extend still stores it.
	NoLookup bool
}

// Validate returns an error that names the field at fault, its value, and what is allowed.
func (o MatchOptions) Validate() error {
	if o.Limit < 0 {
		return fmt.Errorf("db: MatchOptions.Limit is %d: expected a number of tokens, or 0 for the whole prompt", o.Limit)
	}
	return nil
}

// Match is a stored prefix of a prompt and a lease on it: nothing of the prefix is evicted, and no bytes of it are punched,
// unmapped or unlinked until Close. Methods are safe for concurrent use.
//
// A lease costs the disk space of what is deleted or replaced while it is open; Stats shows the oldest. A match that found nothing has none.
type Match struct {
	m      *Model
	prompt kv.Prompt

	mu      lock.Mutex[lock.Match]
	gen     uint64     // of the store: after a Resume that found it changed, the match is looked up anew
	held    lease.Held // Found is nil once the match is closed, and after a lookup that failed
	closed  bool
	tokens  int
	reason  Reason
	counted bool // its tokens count as reused
}

// Match finds the longest stored prefix of prompt, to the token. The match holds on to the prompt's slices: do not
// change them before Close. The caller closes the match, whatever it found. The first Match that meets damage in the index finds nothing, and its
// Reason is Damaged: the next one waits until the index is rebuilt.
func (m *Model) Match(ctx context.Context, prompt kv.Prompt, o MatchOptions) (*Match, error) {
	if err := prompt.Validate(); err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	e, err := m.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer m.leave()
	return m.match(ctx, e, prompt, o)
}

// match is Match in a store that was entered, for a prompt that is valid.
func (m *Model) match(ctx context.Context, e *engine.Engine, prompt kv.Prompt, o MatchOptions) (*Match, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	start := time.Now()
	x := &Match{m: m, prompt: prompt}
	limit := o.limit(len(prompt.Tokens))
	restores := e.Restores()
	restores.Enter()
	defer restores.Leave()
	if err := x.look(e, limit); err != nil {
		return nil, err
	}
	m.s.matches.Add(1)
	if o.NoLookup {
		return x, nil
	}
	e.Count.Matched(x.tokens, x.reason.Code, len(prompt.Tokens), time.Since(start))
	m.logShort("match", x.tokens, limit, x.reason)
	for _, k := range x.held.Rests {
		e.Ledger.Recency().Used(k)
	}
	return x, nil
}

// limit is how many of a prompt's n tokens are asked for; -1 asks for no lookup.
func (o MatchOptions) limit(n int) int {
	switch {
	case o.NoLookup:
		return -1
	case o.Limit > 0:
		return min(n, o.Limit)
	}
	return n
}

// look searches, and holds what was found; with a limit below 0, nothing is looked for. A damaged index is a miss, and is rebuilt.
func (x *Match) look(e *engine.Engine, limit int) error {
	x.gen = x.m.s.gen
	if limit < 0 {
		x.held.Nothing(&e.Leases, engine.Searched(x.m.ms), &x.prompt, Reason{Code: LookupOff})
		x.took()
		return nil
	}
	err := x.held.Find(&e.Leases, engine.Searched(x.m.ms), &x.prompt, limit, false)
	if engine.IsIndexDamage(err) {
		x.m.s.indexDamaged(err)
		x.held.Found.Reason, err = Reason{Code: Damaged, Err: err}, nil
	}
	if err != nil {
		x.held.Drop(e.Pins)
		return err
	}
	x.took()
	return nil
}

// took notes what the lookup says by now.
func (x *Match) took() { x.tokens, x.reason = x.held.Found.Tokens, x.held.Found.Reason }

// logShort says why a match or a restore gives fewer tokens than were asked for. Damage has its own line, at a level that
// operators look at.
func (m *Model) logShort(what string, got, asked int, r Reason) {
	if got < asked && m.s.o.Logger.Enabled(context.Background(), slog.LevelDebug) {
		m.s.o.Logger.Debug(what+" is shorter than asked for", "model", m.ms.Desc.Name, "tokens", got, "asked", asked, "reason", r.String())
	}
}

// Tokens is how many leading tokens of the prompt a Restore is expected to give.
func (x *Match) Tokens() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.tokens
}

// Reason says why the match is not longer.
func (x *Match) Reason() Reason {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.reason
}

// Prompt returns the prompt that was matched. It shares memory with the caller's.
func (x *Match) Prompt() kv.Prompt { return x.prompt }

// StateBytes is the length of the stored state of a tensor of a StateAt group at [Match.Tokens]; 0 if there is none.
func (x *Match) StateBytes(tensor int) (int64, error) {
	e, err := x.enter(context.Background())
	if err != nil {
		return 0, err
	}
	defer x.leave()
	d := &x.m.ms.Desc
	if tensor < 0 || tensor >= len(d.Tensors) || d.Groups[d.Tensors[tensor].Group].Kind != kv.StateAt {
		return 0, nil
	}
	for _, st := range x.held.Found.States {
		if st.At == x.tokens && st.Group == d.Tensors[tensor].Group {
			return e.Source.StateBytes(x.held.Found, &st, tensor)
		}
	}
	return 0, nil
}

// Close gives the lease back. Closing twice is harmless.
func (x *Match) Close() error {
	e := x.m.s.enterAlways()
	defer x.m.s.leave()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil
	}
	x.closed = true
	x.m.s.matches.Add(-1)
	if e == nil {
		x.held.Drop(nil)
	} else {
		x.held.Drop(e.Pins)
		if e.Segments.Ripe() {
			e.Signal()
		}
	}
	return nil
}

// enter is Model.enter, and has the match to itself until leave. It refuses a closed one, and looks one up anew whose store was changed
// while it was suspended.
func (x *Match) enter(ctx context.Context) (*engine.Engine, error) {
	e, err := x.m.enter(ctx)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	if err := x.check(e); err != nil {
		x.leave()
		return nil, err
	}
	return e, nil
}

func (x *Match) leave() {
	x.mu.Unlock()
	x.m.leave()
}

func (x *Match) check(e *engine.Engine) error {
	if x.closed {
		return ErrMatchClosed
	}
	if x.gen == x.m.s.gen && x.held.Found != nil {
		return nil
	}
	if x.tokens > 0 {
		limit := x.tokens
		x.held.Drop(e.Pins)
		return x.look(e, limit)
	}
	why := x.reason
	x.held.Drop(e.Pins)
	err := x.look(e, -1)
	if err == nil {
		x.held.Found.Reason, x.reason = why, why
	}
	return err
}
