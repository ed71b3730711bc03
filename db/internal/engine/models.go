package engine

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/kv"
)

// Registered is a model that [Engine.Register] found or made.
type Registered struct {
	Model *catalog.Model // loaded
	// Superseded is the version that was the latest of this name until then; nil if there was none, or it is this one.
	Superseded *catalog.Model
	Differs    []kv.Difference // nil, too, where the descriptor of Superseded cannot be read
}

// Register returns the model of a descriptor in normal form, and makes it if it is new: then it returns when that is durable.
func (e *Engine) Register(ctx context.Context, desc *kv.Descriptor) (none Registered, err error) {
	fp := desc.Fingerprint()
	ms, old, err := e.known(desc, fp)
	if err != nil {
		return none, err
	}
	if ms != nil && (old == ms || e.Ledger.WAL == nil) {
		if ms.LSN() > 0 && e.Ledger.WAL.DurableLSN() < ms.LSN() { // another call is registering it
			err = e.Ledger.Durable(ms.LSN())
		}
		return Registered{Model: ms}, err
	}
	if e.Ledger.WAL == nil {
		return none, fmt.Errorf("%w, and has no model %q with fingerprint %s yet: a process that writes registers it; then open the store anew, or Suspend and Resume it",
			folder.ErrReadOnly, desc.Name, fp)
	}
	if err := e.Space.BoundState(ctx); err != nil {
		return none, err
	}
	op := oplog.NewModel(desc, 0)
	if err := e.Catalog.ModelFits(op); err != nil { // before room is made for it
		return none, err
	}
	if ms == nil { // else the log has it already
		room := 3 * op.Bytes()
		if err := e.Space.ReserveState(ctx, room); err != nil {
			return none, err
		}
		defer e.Budget.GiveUp(room, 0)
	}
	var out Registered
	var lsn uint64
	retries := e.Space.Retries()
	for again := true; again; {
		out.Model, old, lsn, err = e.logModel(desc, op)
		again, err = retries.After(ctx, err)
	}
	if err != nil {
		return none, err
	}
	if err := out.Model.Load(); err != nil {
		return none, err
	}
	if old != nil && old.Fingerprint != fp {
		out.Superseded = old
		if err := old.Load(); err != nil {
			e.log.Error("the version before of this model cannot be read", slog.String("model", desc.Name), slog.Any("error", err))
		} else {
			out.Differs = old.Desc.Diff(desc)
		}
		e.log.Warn("another version of this model is stored; it will be evicted first",
			slog.String("model", desc.Name), slog.String("differs", oneLine(out.Differs)),
			slog.String("old", old.Fingerprint.String()), slog.String("new", fp.String()))
	}
	return out, e.Ledger.Durable(lsn)
}

// logModel makes a model known. old is the newest version of its name until then: another one may have been registered meanwhile.
func (e *Engine) logModel(desc *kv.Descriptor, op oplog.Model) (m, old *catalog.Model, lsn uint64, err error) {
	c, err := e.Ledger.Begin()
	if err != nil {
		return nil, nil, 0, err
	}
	defer c.End()
	fp := desc.Fingerprint()
	if _, old, err = e.known(desc, fp); err != nil {
		return nil, nil, 0, err
	}
	op.Stamp = e.Ledger.Ranks.Clock.Add(1)
	if err = e.Catalog.ModelFits(op); err != nil {
		return nil, nil, 0, err
	}
	if lsn, err = c.LogState(op); err != nil {
		return nil, nil, 0, err
	}
	return e.Catalog.Model(fp), old, lsn, c.Publish()
}

// known returns the model of that descriptor, nil if it is not registered, and the newest version of its name. The error is that of
// another model with its fingerprint, or says that what is registered cannot be read.
func (e *Engine) known(desc *kv.Descriptor, fp kv.Fingerprint) (ms, latest *catalog.Model, err error) {
	ms = e.Catalog.Model(fp)
	if ms != nil { // a name may differ: it is no part of the fingerprint
		if err := ms.Load(); err != nil {
			return nil, nil, err
		}
	}
	return ms, e.Catalog.Newest(desc.Name), nil
}

// oneLine prints differences.
func oneLine(all []kv.Difference) string {
	var out []string
	for _, d := range all {
		out = append(out, d.String())
	}
	return strings.Join(out, "; ")
}
