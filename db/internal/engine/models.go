package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
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
	if ms != nil && (old == ms || e.wal == nil) {
		if ms.LSN() > 0 && e.wal.DurableLSN() < ms.LSN() { // another call is registering it
			err = e.durable(ms.LSN())
		}
		return Registered{Model: ms}, err
	}
	if e.wal == nil {
		return none, fmt.Errorf("%w, and has no model %q with fingerprint %s yet: a process that writes registers it; then open the store anew, or Suspend and Resume it",
			folder.ErrReadOnly, desc.Name, fp)
	}
	if err := e.BoundState(ctx); err != nil {
		return none, err
	}
	op := oplog.NewModel(desc, 0)
	if err := e.Catalog.ModelFits(op); err != nil { // before room is made for it
		return none, err
	}
	if ms == nil { // else the log has it already
		room := 3 * op.Bytes()
		if err := e.reserveState(ctx, room); err != nil {
			return none, err
		}
		defer e.space.giveUp(room, 0)
	}
	var out Registered
	var lsn uint64
	if err := e.Insist(ctx, func() (err error) {
		e.commitMu.Lock() // another one may have been registered meanwhile
		defer e.commitMu.Unlock()
		if _, old, err = e.known(desc, fp); err != nil {
			return err
		}
		op.Stamp = e.clock.Add(1)
		if err = e.Catalog.ModelFits(op); err != nil {
			return err
		}
		if lsn, err = e.logStateLocked(op); err == nil {
			out.Model = e.Catalog.Model(fp)
		}
		return err
	}); err != nil {
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
	return out, e.durable(lsn)
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

// Retire drops a model with its blocks and refs, and returns when that is durable.
func (e *Engine) Retire(ctx context.Context, fp kv.Fingerprint) error {
	e.ckptMu.Lock() // so that nobody evicts for the room that this gives back
	defer e.ckptMu.Unlock()
	lsn, err := e.retire(fp)
	if err != nil {
		return e.goneForGood(err, e.Barrier)
	}
	if err := e.Barrier(lsn); err != nil {
		return err
	}
	return e.reclaimRest(ctx)
}

// goneForGood returns err, which may say that there is no such thing, when that is made durable: what took it, another call, may not be
// there yet.
func (e *Engine) goneForGood(err error, durable func(lsn uint64) error) error {
	if !errors.Is(err, ErrNotFound) || e.wal == nil {
		return err
	}
	if serr := durable(e.wal.LastLSN()); serr != nil {
		return serr
	}
	return err
}

func (e *Engine) retire(fp kv.Fingerprint) (uint64, error) {
	// The publish gate keeps puts of this model from adding segments meanwhile.
	e.publishGate.Lock()
	defer e.publishGate.Unlock()
	e.commitMu.Lock()
	defer e.commitMu.Unlock()
	if e.Catalog.Model(fp) == nil {
		return 0, fmt.Errorf("%w: model %s", ErrNotFound, fp)
	}
	if err := e.Poisoned(); err != nil { // before segments are looked at, which may not be possible any more
		return 0, err
	}
	op := oplog.Retire{Model: fp}
	for _, s := range e.Segments.Segments() {
		if mine, err := e.holdsModel(s.ID, fp); err != nil {
			return 0, err
		} else if !mine {
			continue
		}
		op.Segments = append(op.Segments, s.ID)
	}
	lsn, err := e.commitBoth(func(t *index.Txn) (oplog.Op, error) {
		return op, recovery.RemoveModel(t, fp, func(index.Entry) bool { return true })
	}, nil)
	if err != nil {
		return 0, err
	}
	e.Segments.Forget(fp) // should the model come back, its records must not go to a file that is to be unlinked
	e.bloomRemoved(1 << 20)
	return lsn, nil
}

// holdsModel reports whether a segment is of that model: each is of one. Where its header is damaged, the index knows.
func (e *Engine) holdsModel(id uint64, fp kv.Fingerprint) (mine bool, err error) {
	d, err := e.Segments.Descriptor(id)
	if err == nil {
		return d.Fingerprint() == fp, nil
	}
	if !errors.Is(err, damage.ErrCorrupt) && !errors.Is(err, segments.ErrMissing) {
		return false, err // too many open files, say: what is left out now keeps its tokens and rows
	}
	v := e.View()
	defer v.Release()
	err = v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		mine = x.Loc.Segment == id && x.Model == fp
		return !mine
	})
	return mine, err
}
