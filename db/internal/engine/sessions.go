package engine

import (
	"context"

	"github.com/dormousekv/dormouse/db/internal/journals"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/sessions"
)

// OpenSession opens a scope's session, or makes it.
func (e *Engine) OpenSession(ctx context.Context, id kv.ScopeID) (*journals.Journal, error) {
	if err := e.Ledger.Poisoned(); err != nil {
		return nil, err
	}
	reserved, err := e.roomForSession(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer e.Budget.GiveUp(reserved, 0)
	return e.Journals.Open(id)
}

// AppendSession adds a frame, as a whole or not at all.
func (e *Engine) AppendSession(ctx context.Context, x *journals.Journal, frame sessions.Frame) error {
	f, reserved, err := e.sessionToWrite(ctx, x, frame)
	if err != nil {
		return err
	}
	defer e.Budget.GiveUp(reserved, 0)
	retries := e.Space.Retries()
	for again := true; again; {
		again, err = retries.After(ctx, f.Append(frame, e.o.Power))
	}
	e.Ledger.Dirty.Store(true) // behind the write: the checkpoint that takes it back syncs the file after that
	return journals.Error(err)
}

// ReplaceSession puts these frames in the place of all that there are. It is durable when it returns.
func (e *Engine) ReplaceSession(ctx context.Context, x *journals.Journal, frames []sessions.Frame) error {
	f, reserved, err := e.sessionToWrite(ctx, x, frames...)
	if err != nil {
		return err
	}
	defer e.Budget.GiveUp(reserved, 0)
	retries := e.Space.Retries()
	for again := true; again; {
		again, err = retries.After(ctx, e.Journals.Replace(f, frames))
	}
	e.Ledger.Dirty.Store(true) // as in AppendSession
	return journals.Error(err)
}

// sessionToWrite returns the file to which frames are written, and takes room in the budget for them. The caller gives that up when the file counts.
func (e *Engine) sessionToWrite(ctx context.Context, x *journals.Journal, frames ...sessions.Frame) (f *sessions.File, reserved int64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if err := e.Ledger.Poisoned(); err != nil {
		return nil, 0, err
	}
	var bytes int64
	for _, frame := range frames {
		if err := frame.Validate(); err != nil {
			return nil, 0, err
		}
		bytes += int64(len(frame.Body)) + 64
	}
	if f, err = e.Journals.File(x); err != nil {
		return nil, 0, err
	}
	reserved, err = e.roomForSession(ctx, bytes)
	return f, reserved, err
}

// roomForSession takes room in the budget for so many bytes in a session's file, and evicts for it.
func (e *Engine) roomForSession(ctx context.Context, bytes int64) (reserved int64, err error) {
	const block = 4096 // of the file system, as most have it
	bytes = (bytes+block-1)/block*block + block
	if !e.Budget.Reserve(bytes, 0) {
		if err := e.Space.MakeRoom(ctx, bytes, 0); err != nil {
			return 0, err
		}
	}
	return bytes, nil
}
