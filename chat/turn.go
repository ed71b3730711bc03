package chat

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// BeginOptions say how a turn begins. The zero value is that of the conversation.
type BeginOptions struct {
	Spans     []kv.Span // images in the message; positions count from its first token
	Embedding []float32 // of the message: what Topic compares with later messages
	Policy    Policy    // nil: the conversation's
	Reserve   int       // room for the answer, in tokens; 0: the conversation's
	Priority  int       // turns of a lower one are evicted first: state of the user that changes often
	Meta      []byte    // the caller's, kept with the turn: at most MaxMeta bytes

	// Instead is a turn in whose place this one comes: it and all after it are taken back with Commit, in the same frame of the file. Until then, also after a
	// kill or Abort, the conversation has them; Turns and View show it without them while the turn is open. Facts stay. 0: none.
	Instead TurnID
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

// Begin begins a turn: it evicts whole turns until the message and its answer have room, the oldest of the lowest priority first, places the
// facts that were set, and computes the message in the view that the policy chooses. It returns a [*TooLongError] if there cannot be room.
func (c *Conversation) Begin(ctx context.Context, message []kv.Token, o BeginOptions) (_ *Turn, err error) {
	leave, err := c.enter(true)
	if err != nil {
		return nil, err
	}
	defer leave()
	if o.Instead != 0 {
		if _, err := c.log.turn(o.Instead); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(c.h.check(message), o.check(message)); err != nil {
		return nil, err
	}
	if o.Reserve == 0 {
		o.Reserve = c.o.Reserve
	}
	if o.Policy == nil {
		o.Policy = c.o.Policy
	}
	if len(message) > c.o.Ring || o.Reserve > c.o.Ring-len(message) {
		return nil, &TooLongError{Need: len(message) + min(o.Reserve, maxTokens), Have: c.o.Ring}
	}
	room := len(message) + o.Reserve
	before := c.stats
	began := time.Now()
	c.makeRoom(0, 0) // Ring may be less than it was
	if why, now := c.due(); now {
		if err := c.rewriteNow(ctx); err != nil {
			return nil, fmt.Errorf("rewriting the log (%s): %w", why, err)
		}
	}
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	c.makeRoom(room, o.Instead)
	after := c.log.without(o.Instead)
	if need := len(after.tokens) + after.waiting() + room; c.h.lim.Trained > 0 && need > c.h.lim.Trained {
		if err := c.rewriteNow(ctx); err != nil {
			return nil, fmt.Errorf("rewriting the log (%d tokens, and the model was trained for %d): %w", need, c.h.lim.Trained, err)
		}
	}
	if o.Instead != 0 {
		defer func() {
			if c.turn == nil { // it failed, or the policy panicked
				c.putBack()
			}
		}()
		if err := c.setAside(ctx, o.Instead); err != nil {
			return nil, err
		}
	}
	if err := c.placeFacts(ctx); err != nil {
		return nil, err
	}
	if err := c.sweep(ctx); err != nil {
		return nil, err
	}
	t := &Turn{c: c, room: room, tokens: slices.Clone(message), part: part{kind: turnPart, view: c.choose(o)}}
	t.part.turn = turnNote{user: len(message), spans: slices.Clone(o.Spans), at: now(), priority: o.Priority,
		meta: slices.Clone(o.Meta), embedding: slices.Clone(o.Embedding)}
	t.part.start = len(c.log.tokens)
	show := time.Now()
	if t.seq, err = c.h.view(c, t.part.view); err != nil {
		return nil, err
	}
	t.stats.Show = time.Since(show)
	if err := t.decode(ctx); err != nil {
		c.h.release(t.seq)
		return nil, err
	}
	c.log.lastTurn++
	t.part.id = uint64(c.log.lastTurn)
	t.stats = TurnStats{
		Show: t.stats.Show, View: length(t.part.view), Reused: max(0, length(t.part.view)-(c.stats.Loaded-before.Loaded)-(c.stats.Prefilled-before.Prefilled)+len(message)),
		Loaded: c.stats.Loaded - before.Loaded, Prefilled: c.stats.Prefilled - before.Prefilled,
		Rewritten: c.stats.Rewritten - before.Rewritten, Begin: time.Since(began),
		Lookup: c.stats.Lookup - before.Lookup, Load: c.stats.Load - before.Load, Prefill: c.stats.Prefill - before.Prefill,
	}
	c.turn = t
	c.h.turns++
	return t, nil
}

func (o *BeginOptions) check(message []kv.Token) error {
	if len(message) == 0 {
		return fmt.Errorf("%w: a message has at least one token", ErrOptions)
	}
	if o.Reserve < 0 {
		return fmt.Errorf("%w: Reserve is %d", ErrOptions, o.Reserve)
	}
	if len(o.Meta) > MaxMeta || len(o.Embedding) > MaxMeta {
		return fmt.Errorf("%w: %d bytes of meta and an embedding of %d numbers, of each at most %d", ErrOptions, len(o.Meta), len(o.Embedding), MaxMeta)
	}
	p := kv.Prompt{Tokens: message, Spans: o.Spans}
	return p.Validate()
}

// makeRoom evicts turns until room tokens fit, in the place of the turns from instead on; 0: behind all.
func (c *Conversation) makeRoom(room int, instead TurnID) {
	for {
		var first *part
		turns := 0
		for i := range c.log.parts {
			p := &c.log.parts[i]
			if p.kind != turnPart || p.gone || instead != 0 && p.id >= uint64(instead) {
				continue
			}
			turns += p.end - p.start
			if first == nil || p.turn.priority < first.turn.priority {
				first = p
			}
		}
		if turns+room <= c.o.Ring {
			return
		}
		first.gone = true
		c.evicted = append(c.evicted, TurnID(first.id))
		c.stats.Evicted++
	}
}

// placeFacts puts the facts that wait into the log.
func (c *Conversation) placeFacts(ctx context.Context) error {
	if len(c.log.pending) == 0 {
		return nil
	}
	if c.old != nil {
		c.old.placed = c.log.pending
	} else {
		var w out
		w.int(len(c.log.pending))
		if err := c.note(ctx, placeFrame, w.b); err != nil {
			return err
		}
	}
	c.log.settle(c.log.pending)
	c.log.pending = nil
	return c.catchUp(ctx)
}

// choose asks the policy.
func (c *Conversation) choose(o BeginOptions) []kv.Range {
	turns := slices.DeleteFunc(c.infos(o.Embedding), func(t TurnInfo) bool { return t.Evicted })
	in := o.Policy(turns, o.Embedding)
	return c.log.turnView(func(id TurnID) bool {
		i := slices.IndexFunc(turns, func(t TurnInfo) bool { return t.ID == id })
		return i >= 0 && i < len(in) && in[i]
	})
}

// ID is the turn's number, under which it is found once it is committed.
func (t *Turn) ID() TurnID { return TurnID(t.part.id) }

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

// decode computes the tokens that were not, and keeps the scores after the last one.
func (t *Turn) decode(ctx context.Context) error {
	if t.rows == len(t.tokens) && t.known {
		return nil
	}
	began := time.Now()
	scores, n, err := t.c.h.decode(ctx, t.c, t.seq, t.part.start+t.rows, t.tokens[t.rows:], true)
	if t.rows < t.part.turn.user {
		t.c.stats.Prefilled += n
		t.c.stats.Prefill += time.Since(began)
	} else {
		t.c.stats.Decoded += n
		t.c.stats.Decode += time.Since(began)
		t.stats.Decoded += n
		t.stats.Decode += time.Since(began)
	}
	t.rows += n
	t.known = false
	if err != nil {
		return err
	}
	t.scores, t.known = append(t.scores[:0], scores...), true
	return nil
}

// Append adds tokens to the answer that the model did not choose: the result of a tool, the end of a template. They are computed with what
// comes next. It returns [ErrTurnFull], and adds none, if there is no room for all of them.
func (t *Turn) Append(ctx context.Context, tokens []kv.Token) error {
	leave, err := t.enter()
	if err != nil {
		return err
	}
	defer leave()
	if len(t.tokens)+len(tokens) > t.room {
		return fmt.Errorf("%w: %d tokens, and room for %d", ErrTurnFull, len(tokens), t.room-len(t.tokens))
	}
	if err := errors.Join(ctx.Err(), t.c.h.check(tokens)); err != nil {
		return err
	}
	t.tokens = append(t.tokens, tokens...)
	return nil
}

// Logits computes what was not and returns the scores of the token to come. They are the caller's until the next call of a method of the turn.
func (t *Turn) Logits(ctx context.Context) ([]float32, error) {
	leave, err := t.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := t.decode(ctx); err != nil {
		return nil, err
	}
	return t.scores, nil
}

// Tokens is the message and the answer as far as it goes.
func (t *Turn) Tokens() []kv.Token {
	t.c.h.mu.Lock()
	defer t.c.h.mu.Unlock()
	return slices.Clone(t.tokens)
}

// Answer is what follows the message.
func (t *Turn) Answer() []kv.Token { return t.Tokens()[t.part.turn.user:] }

// Sampler chooses a token by the scores of all tokens, which it neither keeps nor changes. The host is locked meanwhile: it calls no method of
// the host, nor of what the host handed out. A nil Sampler is [Greedy].
type Sampler func(scores []float32) kv.Token

// choose is the sampler's token. It returns ErrOptions if the model is known not to have it.
func (h *Host) choose(sample Sampler, scores []float32) (kv.Token, error) {
	if sample == nil {
		sample = Greedy
	}
	t := sample(scores)
	if err := h.check([]kv.Token{t}); err != nil {
		return 0, fmt.Errorf("the sampler chose: %w", err)
	}
	return t, nil
}

// Greedy is the token with the highest score, the first one of them.
func Greedy(scores []float32) kv.Token {
	best := 0
	for i, s := range scores {
		if s > scores[best] {
			best = i
		}
	}
	return kv.Token(best)
}

// Stop says whether a token ends the answer. It is part of the answer. With a nil Stop, leaving the loop does, or [ErrTurnFull].
type Stop func(kv.Token) bool

// Generate samples tokens until one ends the answer, yielding each, that one included. If the loop is left or ctx is done, the turn keeps the
// tokens that were yielded. After the last token that there is room for comes [ErrTurnFull]; the turn can be committed as it is. Other conversations go on between two tokens.
func (t *Turn) Generate(ctx context.Context, sample Sampler, stop Stop) iter.Seq2[kv.Token, error] {
	return func(yield func(kv.Token, error) bool) {
		for {
			token, err := t.next(ctx, sample)
			if err != nil {
				yield(0, err)
				return
			}
			if !yield(token, nil) || stop != nil && stop(token) {
				return
			}
		}
	}
}

func (t *Turn) next(ctx context.Context, sample Sampler) (kv.Token, error) {
	leave, err := t.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return t.sample(ctx, sample)
}

// sample adds a token.
func (t *Turn) sample(ctx context.Context, sample Sampler) (kv.Token, error) {
	if len(t.tokens) >= t.room {
		return 0, ErrTurnFull
	}
	if err := t.decode(ctx); err != nil {
		return 0, err
	}
	token, err := t.c.h.choose(sample, t.scores)
	if err == nil {
		t.tokens = append(t.tokens, token)
	}
	return token, err
}

// Verify checks a draft: tokens that something faster expects to come. They are computed in one batch, and those that the sampler would have
// chosen one by one become part of the answer, and after them the token that it chose instead, or next. accepted counts those of the draft.
func (t *Turn) Verify(ctx context.Context, draft []kv.Token, sample Sampler) (accepted int, err error) {
	leave, err := t.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	h := t.c.h
	if err := h.check(draft); err != nil {
		return 0, err
	}
	if len(t.tokens) >= t.room {
		return 0, ErrTurnFull
	}
	draft = draft[:min(len(draft), t.room-len(t.tokens)-1, max(0, h.lim.Batch-(len(t.tokens)-t.rows)))]
	if len(draft) == 0 || len(t.tokens)-t.rows >= h.lim.Batch {
		_, err := t.sample(ctx, sample)
		return 0, err
	}
	if t.rows == len(t.tokens) && !t.known {
		return 0, fmt.Errorf("%w: nothing to go on from", ErrTurnEnded)
	}
	began := time.Now()
	wait := t.tokens[t.rows:]
	var steps []kv.Step
	for i, token := range append(slices.Clone(wait), draft...) {
		steps = append(steps, kv.Step{Token: token, Pos: t.part.start + t.rows + i, Seq: t.seq, Logits: i >= len(wait)-1})
	}
	if err := h.steps(ctx, t.c, steps); err != nil {
		return 0, err
	}
	t.stats.Decoded += len(steps)
	t.c.stats.Decoded += len(steps)
	t.c.stats.Drafted += len(draft)
	scores := t.scores
	had := len(t.tokens)
	for {
		if at := len(wait) - 1 + accepted; at >= 0 {
			scores = h.rt.Logits(at)
		}
		token, err := h.choose(sample, scores)
		if err != nil { // as if nothing had been computed
			t.tokens = t.tokens[:had]
			start := t.part.start + t.rows
			return 0, errors.Join(err, h.rt.Remove(t.seq, kv.Range{Start: start, End: start + len(steps)}))
		}
		t.tokens = append(t.tokens, token)
		if accepted == len(draft) || token != draft[accepted] {
			break
		}
		accepted++
	}
	t.c.stats.Accepted += accepted
	t.rows = len(t.tokens) - 1
	t.known = false
	t.stats.Decode += time.Since(began)
	t.c.stats.Decode += time.Since(began)
	if accepted < len(draft) {
		end := t.part.start + t.rows
		return accepted, h.rt.Remove(t.seq, kv.Range{Start: end, End: end + len(draft) - accepted})
	}
	return accepted, nil
}

// Lookup drafts tokens by the tokens that there are: what came after the last place where the last n tokens stand, at most limit tokens.
func Lookup(tokens []kv.Token, n, limit int) []kv.Token {
	if n < 1 || limit < 1 || len(tokens) <= n {
		return nil
	}
	key := tokens[len(tokens)-n:]
	for i := len(tokens) - n - 1; i >= 0; i-- {
		if slices.Equal(tokens[i:i+n], key) {
			return tokens[i+n : min(i+n+limit, len(tokens))]
		}
	}
	return nil
}

// Commit ends the turn and keeps it. When it returns nil, the turn is durable: in the store's file for conversations. Its rows are stored,
// too; if that fails, they are computed again one day, and Stats counts it. After an error the turn is open still: commit it again, or abort it.
func (t *Turn) Commit(ctx context.Context) error {
	leave, err := t.enter()
	if err != nil {
		return err
	}
	err = t.commit(ctx)
	s := t.stats
	leave()
	if err == nil {
		t.c.h.model.Observe(db.Observation{
			Asked: s.View + t.part.turn.user, Found: s.Loaded, Loaded: s.Loaded, Reused: s.Reused + s.Loaded, Prefilled: s.Prefilled, Decoded: s.Decoded,
			Lookup: s.Lookup, Load: s.Load, Prefill: s.Prefill, Decode: s.Decode,
		})
	}
	return err
}

func (t *Turn) commit(ctx context.Context) error {
	c := t.c
	before := c.stats
	r := turnRecord{part: t.part, tokens: t.tokens, evicted: c.evicted}
	kind, body := uint8(turnFrame), r.encode()
	if c.old != nil {
		kind, body = insteadFrame, c.old.encode(body)
	}
	if err := c.note(ctx, kind, body); err != nil {
		return err
	}
	instead := c.old != nil
	c.evicted, c.old = nil, nil
	start := len(c.log.tokens)
	c.log.place(t.part, t.tokens)
	if err := c.h.rt.Copy(t.seq, c.seq, kv.Range{Start: start, End: start + t.rows}); err != nil {
		c.park() // the rows are computed again
		c.stats.StoreErrors++
		c.stats.StoreError = err
	} else {
		c.rows = start + t.rows
	}
	t.end()
	c.stats.Turns++
	if c.seq >= 0 {
		c.store(ctx)
	}
	if instead && c.seq >= 0 {
		c.sweep(ctx) // what had to stay until it was stored; or the next turn does
	}
	t.stats.Stored = c.stats.Stored - before.Stored
	if c.stats.StoreErrors > before.StoreErrors {
		t.stats.StoreError = c.stats.StoreError
	}
	c.failed = nil // what failed once is tried again after each turn
	c.h.tidy()
	return nil
}

// Abort ends the turn as if it had not begun: turns in whose place it came are there again. Facts that it placed stay, and turns that were evicted for it are
// evicted until the conversation is opened again; for good, if its log is rewritten before that.
func (t *Turn) Abort(context.Context) error {
	t.c.h.mu.Lock()
	defer t.c.h.mu.Unlock()
	if t.ended {
		return ErrTurnEnded
	}
	t.end()
	t.c.h.tidy()
	return nil
}

// end gives back what the turn had of the cache.
func (t *Turn) end() {
	t.dropBranches()
	t.c.h.release(t.seq)
	t.c.putBack()
	t.c.turn, t.ended = nil, true
	t.c.h.turns--
}
