package db

import (
	"context"
	"errors"
	"time"

	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/kv"
)

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

func (m *Model) putOnIndex(ctx context.Context, x *Match, prompt kv.Prompt, rows kv.Rows, o PutOptions) (_ PutResult, err error) {
	var sum write.Result
	err = m.s.onIndex(ctx, func() error {
		r, err := m.put(ctx, x, prompt, rows, o)
		sum.Add(write.Result(r))
		return err
	})
	return PutResult(sum), err
}

func (m *Model) put(ctx context.Context, x *Match, prompt kv.Prompt, rows kv.Rows, o PutOptions) (PutResult, error) {
	start := time.Now()
	if err := prompt.Validate(); err != nil {
		return PutResult{}, err
	}
	if err := o.Validate(); err != nil {
		return PutResult{}, err
	}
	if err := rows.Validate(&m.ms.Desc); err != nil {
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
	var result write.Result
	var extends *lease.Held
	if x != nil {
		extends = &x.held
	}
	for range putAttempts {
		var last *write.Put // what it has stored stays while room is made for the rest
		err = e.insist(ctx, func() error {
			w := e.writes.New(m.written(e), rows, extends, write.Options{Codec: o.Codec, Compression: o.Compression})
			err := w.Run(ctx, &prompt)
			result.Add(w.Result)
			if last != nil {
				last.Release()
			}
			last = w
			return err
		})
		last.Release()
		if !write.IsGone(err) || errors.Is(err, ErrNoSpace) { // that would evict again and again
			break
		}
		e.awaitCommit() // of whoever takes the block out
	}
	if err == nil && o.KeepStates > 0 {
		err = e.writes.ThinStates(searched(m.ms), &prompt, max(2, o.KeepStates))
	}
	if isIndexDamage(err) {
		m.s.indexDamaged(err)
	}
	e.count.put(PutResult(result), since(start))
	e.maybeBackground()
	return PutResult(result), err
}

// putAttempts bounds how often a put starts over because a block that it rests on went meanwhile: it was deleted, evicted, or
// a longer one took its place. What was stored until then stays, and is found.
const putAttempts = 100
