package db

import (
	"context"
	"errors"
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// exactTokens at the start of a prompt are kept exactly: attention sinks take most of every later token's attention.
const exactTokens = 4

// putChunkBytes bounds what one log frame publishes, and so what a put holds back from others.
const putChunkBytes = 32 << 20

// Put stores the rows of prompt. rows may cover any range of positions, as long as the prefix before it is stored or
// included; rows beyond the prompt are not looked at. Blocks that are stored already are left as they are, unless rows
// has more of them (a window group that was missing). A prompt whose rows end early is stored up to there.
//
// When Put returns nil, the rows survive the process. It returns a [*NotStoredError] if rows start behind what is
// stored, [ErrNoSpace] if they do not fit, and an error that wraps kv.ErrRows for rows that do not fit the tensors;
// whole blocks that were stored before the error stay.
func (m *Model) Put(ctx context.Context, prompt kv.Prompt, rows kv.Rows, o PutOptions) (PutResult, error) {
	return m.putOnIndex(ctx, nil, prompt, rows, o)
}

// Extend is Put for a prompt that goes on from this match: its lease keeps the prefix alive meanwhile. Afterwards the
// match rests on what was stored last.
func (x *Match) Extend(ctx context.Context, prompt kv.Prompt, rows kv.Rows, o PutOptions) (PutResult, error) {
	return x.m.putOnIndex(ctx, x, prompt, rows, o)
}

func (m *Model) putOnIndex(ctx context.Context, x *Match, prompt kv.Prompt, rows kv.Rows, o PutOptions) (out PutResult, err error) {
	err = m.s.onIndex(ctx, func() error {
		r, err := m.put(ctx, x, prompt, rows, o)
		out.add(r)
		return err
	})
	return out, err
}

func (m *Model) put(ctx context.Context, x *Match, prompt kv.Prompt, rows kv.Rows, o PutOptions) (PutResult, error) {
	start := time.Now()
	if err := prompt.Validate(); err != nil {
		return PutResult{}, err
	}
	if err := o.Validate(); err != nil {
		return PutResult{}, err
	}
	if err := rows.Validate(&m.ms.desc); err != nil {
		return PutResult{}, err
	}
	e, err := m.enter()
	if err != nil {
		return PutResult{}, err
	}
	defer m.s.leave()
	if x != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		if err := x.check(e); err != nil {
			return PutResult{}, err
		}
	}
	if err := e.poisoned(); err != nil {
		return PutResult{}, err
	}
	if o.NoStore {
		return PutResult{}, nil
	}
	if o.Codec == 0 {
		o.Codec = e.o.Codec
	}
	if o.Compression == 0 {
		o.Compression = e.o.Compression
	}
	var result PutResult
	for range putAttempts {
		var last *putter // what it has stored stays while room is made for the rest
		err = e.insist(ctx, func() error {
			w := &putter{e: e, m: m, match: x, rows: rows, o: o}
			err := w.run(ctx, &prompt)
			result.add(w.result)
			if last != nil {
				last.unpin()
			}
			last = w
			return err
		})
		last.unpin()
		if !isGone(err) || errors.Is(err, ErrNoSpace) { // that would evict again and again
			break
		}
		e.awaitCommit() // of whoever takes the block out
	}
	if err == nil && o.KeepStates > 0 {
		err = m.thinStates(e, &prompt, max(2, o.KeepStates))
	}
	if isIndexDamage(err) {
		m.s.indexDamaged(err)
	}
	e.count.put(result, since(start))
	e.maybeBackground()
	return result, err
}

// putAttempts bounds how often a put starts over because a block that it rests on went meanwhile: it was deleted, evicted, or
// a longer one took its place. What was stored until then stays, and is found.
const putAttempts = 100

func isGone(err error) bool {
	var missing *NotStoredError
	return errors.As(err, &missing) && missing.Reason.Code == Gone
}

// putter is one put under way.
type putter struct {
	e      *engine
	m      *Model
	match  *Match // nil for a plain Put
	rows   kv.Rows
	o      PutOptions
	result PutResult

	p     kv.Prompt // the part of the prompt that has rows
	chain *kv.Chain
	cover []coverage         // by group
	pin   kv.Key             // the deepest block that this put rests on
	left  []kv.Key           // marked as being evicted: tails that it takes the place of
	lent  []kv.Key           // pinned: blocks that must still be stored when what is planned is published
	met   map[index.Loc]bool // window records whose rows this put has looked at before it replaces them

	planned      []record // not yet written
	plannedBytes int64
	gated        bool          // holds the gate
	batch        []index.Entry // written, not yet published
	batchBytes   int64
	lsn          uint64
	created      int64 // when the put began, in Unix seconds
}

// run stores block after block, a chunk at a time. Afterwards the put rests on the deepest block that is stored: unpin ends that.
func (w *putter) run(ctx context.Context, prompt *kv.Prompt) error {
	if err := w.plan(prompt); err != nil {
		return err
	}
	defer w.giveBack()
	stored, err := w.known() // blocks of the chain that are known to be stored, or in the batch
	if err != nil {
		return err
	}
	for i := stored; i < w.chain.Len(); i++ {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, w.publish(ctx))
		}
		if err := w.block(ctx, i); err != nil {
			return errors.Join(err, w.publish(ctx))
		}
		stored++
		if w.batchBytes >= putChunkBytes {
			if err := w.publish(ctx); err != nil {
				return err
			}
		}
	}
	if err := w.publish(ctx); err != nil {
		return err
	}
	if stored > 0 {
		_, w.result.Tokens = w.chain.Block(stored - 1)
	}
	if w.e.o.Durability == Power {
		w.lsn = w.e.wal.LastLSN() // some of it may have been stored by another put: wait for that one, too
	}
	return w.e.durable(w.lsn)
}
