package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/kv"
)

// SetFact sets a fact, and it is durable when SetFact returns. Every turn that begins later attends to it, and no longer to an older fact of that name.
// Without tokens, SetFact removes the fact. A fact that is set already, with the same tokens, stays where it is, so a program may set its facts at
// every start. If the facts do not fit Options.Facts, SetFact calls Options.Merge. Without Merge it returns [ErrFactsFull].
//
// No view has a fact that was removed or replaced. The conversation's file and rows have it until the log is rewritten. SetSystem rewrites the log at
// once, also with the same system prompt.
func (c *Conversation) SetFact(ctx context.Context, name string, tokens []kv.Token) error {
	leave, err := c.enter(false)
	if err != nil {
		return err
	}
	f := fact{name: name, tokens: slices.Clone(tokens)}
	if err = c.h.check(tokens); err == nil && len(name) > MaxMeta {
		err = fmt.Errorf("%w: the name of a fact of %d bytes, at most %d", ErrOptions, len(name), MaxMeta)
	}
	if err != nil {
		leave()
		return err
	}
	before := c.log.coming()
	if i := slices.IndexFunc(before, func(g fact) bool { return g.name == name }); i < 0 && len(tokens) == 0 || i >= 0 && slices.Equal(before[i].tokens, tokens) {
		leave()
		return nil
	}
	with := append(slices.DeleteFunc(slices.Clone(before), func(g fact) bool { return g.name == name }), f)
	full := c.fits(c.o.System, with)
	if full == nil || len(tokens) == 0 {
		defer leave()
		return c.setFacts(ctx, f)
	}
	room, merge := c.o.Facts-len(c.o.System), c.o.Merge
	leave()
	if merge == nil {
		return full
	}
	less, err := merge(ctx, named(with), room)
	if err != nil {
		return errors.Join(full, err)
	}
	if leave, err = c.enter(false); err != nil {
		return err
	}
	defer leave()
	return c.merge(ctx, before, less)
}

// setFacts writes facts to the file and the log.
func (c *Conversation) setFacts(ctx context.Context, fs ...fact) error {
	for _, f := range fs {
		f.id = c.log.lastFact + 1
		if err := c.note(ctx, factFrame, f.encode()); err != nil {
			return err
		}
		c.log.set(f)
	}
	return nil
}

// merge sets the facts that Options.Merge has returned. Facts that changed while it ran stay as they are.
func (c *Conversation) merge(ctx context.Context, before []fact, less []Fact) error {
	after := c.log.coming()
	number := func(facts []fact, name string) uint64 {
		for _, f := range facts {
			if f.name == name {
				return f.id
			}
		}
		return 0
	}
	var changes []fact
	for _, f := range slices.Clone(after) {
		if f.id == number(before, f.name) && !slices.ContainsFunc(less, func(g Fact) bool { return g.Name == f.name }) {
			changes = append(changes, fact{name: f.name})
		}
	}
	for _, f := range less {
		same := slices.ContainsFunc(after, func(g fact) bool { return g.name == f.Name && slices.Equal(g.tokens, f.Tokens) })
		if !same && number(after, f.Name) == number(before, f.Name) {
			changes = append(changes, fact{name: f.Name, tokens: slices.Clone(f.Tokens)})
		}
	}
	for _, f := range changes {
		if err := c.h.check(f.tokens); err != nil {
			return err
		}
		after = append(slices.DeleteFunc(after, func(g fact) bool { return g.name == f.name }), f)
	}
	if err := c.fits(c.o.System, after); err != nil {
		return fmt.Errorf("%w after Merge", err)
	}
	if c.rewrite == "" {
		c.rewrite = mergedFacts
	}
	defer c.h.tidy()
	return c.setFacts(ctx, changes...)
}

// Facts returns the facts that the next turn attends to, the oldest first.
func (c *Conversation) Facts() []Fact {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	return named(c.log.coming())
}

func named(facts []fact) (out []Fact) {
	for _, f := range facts {
		out = append(out, Fact{f.name, f.tokens})
	}
	return out
}
