package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// ErrUnknownPrompt is returned by [PromptTo] for a block whose prompt the store cannot tell: it has the hash of a scope's name, and of adapters
// only what they make of the keys.
var ErrUnknownPrompt = errors.New("the store does not know the whole prompt")

// PromptTo returns the prompt that ends with a stored block, as its records have it, and its model. The prompt has the block's key in this store, which is
// checked: [ErrUnknownPrompt] where a scope or adapters belong to it. [db.ErrNotFound] if the block is not stored, or one before it is not.
//
// It gives tokens of a stored prompt: whoever calls it decides who sees them.
func PromptTo(ctx context.Context, s *db.Store, block kv.Key) (model kv.Fingerprint, out kv.Prompt, err error) {
	e, leave, err := s.Enter(ctx)
	if err != nil {
		return model, out, err
	}
	defer leave()
	return promptTo(ctx, e, block)
}

func promptTo(ctx context.Context, e *engine.Engine, block kv.Key) (model kv.Fingerprint, out kv.Prompt, err error) {
	blocks, err := upTo(e, block)
	if err != nil {
		return model, kv.Prompt{}, err
	}
	last := blocks[len(blocks)-1]
	model = last.Model
	if !last.Scope.IsShared() {
		return model, kv.Prompt{}, fmt.Errorf("%w: it is of the scope %s", ErrUnknownPrompt, last.Scope)
	}
	for _, x := range blocks {
		if err := ctx.Err(); err != nil {
			return model, kv.Prompt{}, err
		}
		if err := e.Judge.Record(x.Key, 0, x.Loc, func(r *segments.Record) error { return appendBlock(&out, r) }); err != nil {
			return model, kv.Prompt{}, err
		}
	}
	m := e.Catalog.Model(model)
	if m == nil {
		return model, kv.Prompt{}, fmt.Errorf("%w: model %s", db.ErrNotFound, model)
	}
	if err := m.Load(); err != nil {
		return model, kv.Prompt{}, err
	}
	if chain := e.Hasher.Chain(model, m.Desc.BlockTokens, &out); chain.Key(chain.Len()-1) != block {
		return model, kv.Prompt{}, fmt.Errorf("%w: it was computed with adapters", ErrUnknownPrompt)
	}
	return model, out, nil
}

// upTo are the blocks of a prompt in order, up to one of them.
func upTo(e *engine.Engine, block kv.Key) (blocks []index.Entry, err error) {
	v := e.View()
	defer v.Release()
	for key := block; ; {
		x, ok, err := v.Get(key, 0)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("%w: block %s", db.ErrNotFound, key)
		}
		blocks = append(blocks, x)
		if x.First == 0 {
			slices.Reverse(blocks)
			return blocks, nil
		}
		key = x.Parent
	}
}

// appendBlock adds the tokens and spans of the next block to a prompt.
func appendBlock(p *kv.Prompt, r *segments.Record) error {
	first := len(p.Tokens)
	if int(r.First()) != first {
		return fmt.Errorf("%w: a block begins at token %d, and the one before it ends at %d", db.ErrCorrupt, r.First(), first)
	}
	part := r.Prompt()
	p.Tokens = append(p.Tokens, part.Tokens...)
	for _, span := range part.Spans {
		span.Start += first
		if n := len(p.Spans); n == 0 || p.Spans[n-1].Start != span.Start { // the block before it may have it, too
			p.Spans = append(p.Spans, span)
		}
	}
	return nil
}
