package db

import (
	"cmp"
	"context"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// Put stores the rows of prompt. rows may cover any range of positions, as long as the prefix before it is stored or
// included; rows beyond the prompt are not looked at. Blocks that are stored already are left as they are, unless rows
// has more of them (a window group that was missing). A prompt whose rows end early is stored up to there.
//
// When Put returns nil, the rows survive the process. It returns a [*NotStoredError] if rows start behind what is
// stored, [ErrNoSpace] if they do not fit, and an error that wraps kv.ErrRows for rows that do not fit the tensors;
// whole blocks that were stored before the error stay.
func (m *Model) Put(ctx context.Context, prompt kv.Prompt, rows kv.Rows, o PutOptions) (PutResult, error) {
	if err := m.checkPut(&prompt, rows, o); err != nil {
		return PutResult{}, err
	}
	e, err := m.enter(ctx)
	if err != nil {
		return PutResult{}, err
	}
	defer m.leave()
	return m.put(ctx, e, nil, &prompt, rows, o)
}

// Extend is Put for a prompt that goes on from this match: its lease keeps the prefix alive meanwhile. Afterwards the
// match rests on what was stored last, and that alone has moved: Tokens, Reason, Restore and View answer for what [Model.Match] found.
func (x *Match) Extend(ctx context.Context, prompt kv.Prompt, rows kv.Rows, o PutOptions) (PutResult, error) {
	if err := x.m.checkPut(&prompt, rows, o); err != nil {
		return PutResult{}, err
	}
	e, err := x.enter(ctx)
	if err != nil {
		return PutResult{}, err
	}
	defer x.leave()
	return x.m.put(ctx, e, &x.held, &prompt, rows, o)
}

// checkPut refuses what cannot be put.
func (m *Model) checkPut(prompt *kv.Prompt, rows kv.Rows, o PutOptions) error {
	if err := prompt.Validate(); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return err
	}
	return rows.Validate(&m.ms.Desc)
}

// put is Put in a store that was entered. extends is the match that it goes on from, or nil.
func (m *Model) put(ctx context.Context, e *engine.Engine, extends *lease.Held, prompt *kv.Prompt, rows kv.Rows, o PutOptions) (PutResult, error) {
	if err := e.Ledger.Poisoned(); err != nil || o.NoStore {
		return PutResult{}, m.s.checkIndex(err)
	}
	did, err := e.Put(ctx, m.ms, prompt, rows, extends, engine.PutOptions{
		Codec: cmp.Or(o.Codec, m.s.o.Codec), Compression: cmp.Or(o.Compression, m.s.o.Compression), KeepStates: o.KeepStates,
	})
	return PutResult(did), m.s.checkIndex(err)
}

// PutOptions say how rows are stored. The zero value is what the store was opened with.
type PutOptions struct {
	Codec       quant.Codec       // for float tensors, as Options.Codec
	Compression quant.Compression // kept per plane if it saves at least 5 %
	// NoStore stores nothing: the request wants to leave no trace.
	NoStore bool
	// KeepStates bounds how many states of each StateAt group stay stored on the way of the prompt: the first one and the last
	// KeepStates-1. The put gives up the others, as if they had been evicted, but for those that other prompts go on from,
	// that a ref names, that scopes share, or that an open match rests on. 1 is taken as 2; 0 or less: all stay.
	KeepStates int
}

// Validate returns an error that names the field at fault, its value, and what is allowed.
func (o PutOptions) Validate() error { return validCodecs("PutOptions", o.Codec, o.Compression) }

// PutResult says what a put did.
type PutResult struct {
	Tokens  int   // the prompt is now stored up to here, after an error at least so far
	Blocks  int   // blocks that were not stored before
	Records int   // records written
	Reused  int   // records that were stored already; their headers are whole, their rows were not read
	Bytes   int64 // bytes written
}
