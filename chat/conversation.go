package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Open opens a conversation, or makes a new one. After a kill it has exactly what was committed.
//
// The error is [ErrOpen] if the conversation is open already, in any host of the store, and [ErrTokenizer] if it was held with another tokenizer. If the
// file is damaged, it is the store's error with file and offset, and the file stays as it is.
func (h *Host) Open(ctx context.Context, id string, o Options) (*Conversation, error) {
	if err := o.defaults(h.lim); err != nil {
		return nil, err
	}
	if id == "" || len(Scope(id)) > db.MaxRefName {
		return nil, fmt.Errorf("%w: a conversation needs a name, of at most %d bytes", ErrOptions, db.MaxRefName-len(Scope("")))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.check(o.System); err != nil {
		return nil, err
	}
	if h.closed {
		return nil, ErrClosed
	}
	if h.open[id] != nil {
		return nil, fmt.Errorf("%w: %q", ErrOpen, id)
	}
	file, err := h.store.OpenSession(ctx, Scope(id))
	if errors.Is(err, db.ErrSessionOpen) {
		return nil, fmt.Errorf("%w: %q: %w", ErrOpen, id, err)
	}
	if err != nil {
		return nil, err
	}
	c := &Conversation{h: h, id: id, o: o, file: file, seq: -1, hole: noHole, fold: foldBytes}
	if err := c.read(ctx); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	h.open[id] = c
	c.touch()
	return c, nil
}

// read builds the log from the file. If the file is empty, it writes the head.
func (c *Conversation) read(ctx context.Context) error {
	desc := c.h.model.Descriptor()
	frames, err := db.Collect(c.file.Frames(ctx))
	if err != nil {
		return err
	}
	for _, f := range frames {
		c.bytes += frameBytes(f.Body)
	}
	if len(frames) == 0 {
		c.head = head{id: c.id, user: c.o.User, tokenizer: desc.Tokenizer, fingerprint: c.h.model.Fingerprint(), created: now(), system: slices.Clone(c.o.System)}
		c.log = newLog(Scope(c.id), c.o.User, c.head.system)
		return c.note(ctx, headFrame, c.head.encode())
	}
	if c.head, c.log, err = replay(Scope, frames); err != nil {
		return fmt.Errorf("conversation %q: %w", c.id, err)
	}
	switch {
	case c.head.id != c.id:
		return fmt.Errorf("conversation %q: %w: it is that of %q", c.id, errFrame, c.head.id)
	case c.head.tokenizer != desc.Tokenizer:
		return fmt.Errorf("%w: %q", ErrTokenizer, c.id)
	case c.head.fingerprint != c.h.model.Fingerprint():
		c.rewrite = "other weights"
	case c.o.System != nil && !slices.Equal(c.o.System, c.head.system):
		c.rewrite = "another system prompt"
	}
	if c.o.System == nil {
		c.o.System = slices.Clone(c.head.system)
	}
	return c.fits(c.o.System, c.log.coming())
}

// fits returns ErrFactsFull if the system prompt and the facts take more than Options.Facts.
func (c *Conversation) fits(system []kv.Token, facts []fact) error {
	n := 0
	for _, f := range facts {
		n += len(f.tokens)
	}
	if len(system)+n > c.o.Facts {
		return fmt.Errorf("%w: a system prompt of %d tokens and facts of %d, and Facts is %d", ErrFactsFull, len(system), n, c.o.Facts)
	}
	return nil
}

// ID returns the name of the conversation.
func (c *Conversation) ID() string { return c.id }

// System returns the system prompt.
func (c *Conversation) System() []kv.Token {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	return slices.Clone(c.o.System)
}

// Close closes the conversation. It aborts an open turn.
func (c *Conversation) Close() error {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	if c.closed {
		return nil
	}
	return c.close()
}

func (c *Conversation) close() error {
	if c.turn != nil {
		c.turn.end()
	}
	c.park()
	c.closed = true
	delete(c.h.open, c.id)
	return c.file.Close()
}

// SetSystem changes the system prompt and rewrites the log. If the rewrite fails, the next turn begins with it.
func (c *Conversation) SetSystem(ctx context.Context, tokens []kv.Token) error {
	leave, err := c.enter(true)
	if err != nil {
		return err
	}
	defer leave()
	if err := errors.Join(c.h.check(tokens), ctx.Err()); err != nil {
		return err
	}
	if err := c.fits(tokens, c.log.coming()); err != nil {
		return err
	}
	c.dropRewrite()
	c.o.System, c.rewrite = slices.Clone(tokens), "another system prompt"
	if err := c.rewriteNow(ctx); err != nil {
		return err
	}
	return c.store(ctx)
}

// Rewind takes back a turn and all turns after it. Facts stay. It is durable when Rewind returns. To edit a message or to answer it again, use
// [BeginOptions].Instead, which keeps the old turn until the new one is committed.
func (c *Conversation) Rewind(ctx context.Context, id TurnID) error {
	leave, err := c.enter(true)
	if err != nil {
		return err
	}
	defer leave()
	i, err := c.log.turn(id)
	if err != nil {
		return err
	}
	var w out
	w.uint(uint64(id))
	if err := c.note(ctx, rewindFrame, w.b); err != nil {
		return err
	}
	c.takeBack(i)
	return nil
}

// Forget erases one turn. When it returns nil, the log is rewritten and the store synced, and no view, log or row has tokens of the turn. The turn may
// have been evicted or rewound before. After an error, call Forget again: it finishes what is left.
func (c *Conversation) Forget(ctx context.Context, id TurnID) error {
	leave, err := c.enter(true)
	if err != nil {
		return err
	}
	defer leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	i, err := c.log.turn(id)
	if err != nil && (id == 0 || id > c.log.lastTurn) {
		return err
	}
	c.dropRewrite()
	if err == nil && !c.log.parts[i].gone { // if the rewrite fails, the turn is at least evicted
		c.log.parts[i].gone = true
		c.evicted = append(c.evicted, id)
	}
	c.rewrite = "a turn is forgotten"
	if err := c.rewriteNow(ctx); err != nil {
		return err
	}
	c.h.clear()
	if err := c.store(ctx); err != nil {
		return err
	}
	return c.h.store.Sync(ctx)
}

// MaxMeta bounds the caller's bytes of a conversation and of a turn, and the name of a fact.
const MaxMeta = 64 << 10

// SetMeta keeps up to MaxMeta bytes with the conversation for the caller, such as a title.
func (c *Conversation) SetMeta(ctx context.Context, meta []byte) error {
	if len(meta) > MaxMeta {
		return fmt.Errorf("%w: %d bytes of meta, at most %d", ErrOptions, len(meta), MaxMeta)
	}
	leave, err := c.enter(false)
	if err != nil {
		return err
	}
	defer leave()
	if err := c.note(ctx, metaFrame, meta); err != nil {
		return err
	}
	c.log.meta = slices.Clone(meta)
	return nil
}

// Meta returns what SetMeta was given.
func (c *Conversation) Meta() []byte {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	return slices.Clone(c.log.meta)
}

// Stats returns the counters of the conversation.
func (c *Conversation) Stats() Stats {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	return c.stats
}
