package db

import (
	"context"

	"github.com/dormousekv/dormouse/db/internal/engine"
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
	if err := e.Poisoned(); err != nil {
		return PutResult{}, err
	}
	if o.NoStore {
		return PutResult{}, nil
	}
	if o.Codec == 0 {
		o.Codec = m.s.o.Codec
	}
	if o.Compression == 0 {
		o.Compression = m.s.o.Compression
	}
	var extends *lease.Held
	if x != nil {
		extends = &x.held
	}
	result, err := e.Put(ctx, m.ms, &prompt, rows, extends, engine.PutOptions{Codec: o.Codec, Compression: o.Compression, KeepStates: o.KeepStates})
	if engine.IsIndexDamage(err) {
		m.s.indexDamaged(err)
	}
	return PutResult(result), err
}
