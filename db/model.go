package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Model is a handle on one model's part of the store. It is safe for concurrent use and stays valid across Suspend
// and Resume, until Close.
type Model struct {
	s  *Store
	ms *catalog.Model
}

// Registered is what [Store.Register] gives: the model, and the version of it that went before.
type Registered struct {
	*Model
	// Superseded is the version that was the latest of this name until this call; zero if there was none, or it is this one. Its blocks
	// are the first to be evicted.
	Superseded kv.Fingerprint
	// Differs are the fields in which Model differs from that; nil, too, where its descriptor cannot be read, which is logged.
	Differs []kv.Difference
}

// Model returns the model with that fingerprint, which was registered before. It writes nothing. ErrNotFound if there is none,
// ErrCorrupt if its descriptor cannot be read.
func (s *Store) Model(fp kv.Fingerprint) (*Model, error) {
	e, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer s.leave()
	ms := e.catalog.Model(fp)
	if ms == nil {
		return nil, fmt.Errorf("%w: model %s", ErrNotFound, fp)
	}
	if err := ms.Load(); err != nil {
		return nil, err
	}
	return &Model{s: s, ms: ms}, nil
}

// Register returns the part of the store that belongs to desc, and makes it if it is new: then it returns when that is durable.
// Descriptors coexist: one of a known name that differs becomes the latest version, the difference is logged field by field, and the
// data of the older versions is the first to be evicted. One that is the latest version already is looked up, and nothing is written.
//
// It returns an error that wraps kv.ErrDescriptor for a descriptor that leaves out which model it is of or contradicts itself
// ([kv.Descriptor.Validate]), or takes over [MaxDescriptorBytes]; ErrReadOnly for a new one in a
// read-only store; ErrNoSpace if the budget has no room for it, and nothing can be evicted; and ErrLimit if the store has
// [MaxModels], or with it [MaxHeadBytes].
func (s *Store) Register(ctx context.Context, desc kv.Descriptor) (Registered, error) {
	var out Registered
	err := s.onIndex(ctx, func() (err error) {
		out, err = s.registerOnce(ctx, desc)
		return err
	})
	return out, err
}

func (s *Store) registerOnce(ctx context.Context, desc kv.Descriptor) (none Registered, err error) {
	if err := desc.Validate(); err != nil {
		return none, err
	}
	if desc, err = desc.Normal(); err != nil {
		return none, err
	}
	if err := descriptorFits(&desc); err != nil {
		return none, err
	}
	e, err := s.enter()
	if err != nil {
		return none, err
	}
	defer s.leave()
	fp := desc.Fingerprint()

	ms, old, err := e.known(&desc, fp)
	if err != nil {
		return none, err
	}
	if ms != nil && (old == ms || e.wal == nil) {
		if ms.LSN() > 0 && e.wal.DurableLSN() < ms.LSN() { // another call is registering it
			err = e.durable(ms.LSN())
		}
		return Registered{Model: &Model{s: s, ms: ms}}, err
	}
	if err := e.boundState(ctx); err != nil {
		return none, err
	}
	out, op := Registered{Model: &Model{s: s}}, oplog.NewModel(&desc, 0)
	if err := e.catalog.ModelFits(op); err != nil { // before room is made for it
		return none, err
	}
	if ms == nil { // else the log has it already
		room := 3 * op.Bytes()
		if err := e.reserveState(ctx, room); err != nil {
			return none, err
		}
		defer e.space.giveUp(room, 0)
	}
	var lsn uint64
	if err := e.insist(ctx, func() (err error) {
		e.logMu.Lock() // another one may have been registered meanwhile
		defer e.logMu.Unlock()
		if _, old, err = e.known(&desc, fp); err != nil {
			return err
		}
		op.Stamp = e.clock.Add(1)
		if err = e.catalog.ModelFits(op); err != nil {
			return err
		}
		if lsn, err = e.logStateLocked(op); err == nil {
			out.ms = e.catalog.Model(fp)
		}
		return err
	}); err != nil {
		return none, err
	}
	if err := out.ms.Load(); err != nil {
		return none, err
	}
	if old != nil && old.Fingerprint != fp {
		out.Superseded = old.Fingerprint
		if err := old.Load(); err != nil {
			e.log.Error("the version before of this model cannot be read", slog.String("model", desc.Name), slog.Any("error", err))
		} else {
			out.Differs = old.Desc.Diff(&desc)
		}
		e.log.Warn("another version of this model is stored; it will be evicted first",
			slog.String("model", desc.Name), slog.String("differs", oneLine(out.Differs)),
			slog.String("old", old.Fingerprint.String()), slog.String("new", fp.String()))
	}
	return out, e.durable(lsn)
}

// known returns the model of that descriptor, nil if it is not registered, and the newest version of its name. The error is that of
// another model with its fingerprint, or says that what is registered cannot be read.
func (e *engine) known(desc *kv.Descriptor, fp kv.Fingerprint) (ms, latest *catalog.Model, err error) {
	ms = e.catalog.Model(fp)
	if ms != nil { // a name may differ: it is no part of the fingerprint
		if err := ms.Load(); err != nil {
			return nil, nil, err
		}
	}
	return ms, e.catalog.Newest(desc.Name), nil
}

// oneLine prints differences.
func oneLine(all []kv.Difference) string {
	var out []string
	for _, d := range all {
		out = append(out, d.String())
	}
	return strings.Join(out, "; ")
}

// Descriptor returns the model's descriptor in normal form.
func (m *Model) Descriptor() kv.Descriptor { return m.ms.Desc }

// Fingerprint names this version of the model.
func (m *Model) Fingerprint() kv.Fingerprint { return m.ms.Fingerprint }

// enter is Store.enter, and checks that the model was not retired.
func (m *Model) enter() (*engine, error) {
	e, err := m.s.enter()
	if err != nil {
		return nil, err
	}
	if !e.catalog.Has(m.ms) {
		m.s.leave()
		return nil, fmt.Errorf("%w: %s %s", ErrRetired, m.ms.Name, m.ms.Fingerprint)
	}
	return e, nil
}

// Retire drops a version of a model at once: its blocks and its refs, as one log frame. It returns when that is
// durable; the space comes back when no open match can see it. ErrNotFound if there is no such model.
func (s *Store) Retire(ctx context.Context, fp kv.Fingerprint) error {
	tried := false
	return s.onIndex(ctx, func() error {
		err := s.retireOnce(ctx, fp)
		if tried && errors.Is(err, ErrNotFound) {
			return nil // the try that met the damage had logged it
		}
		tried = true
		return err
	})
}

func (s *Store) retireOnce(ctx context.Context, fp kv.Fingerprint) error {
	e, err := s.enter()
	if err != nil {
		return err
	}
	defer s.leave()
	e.ckptMu.Lock() // so that nobody evicts for the room that this gives back
	defer e.ckptMu.Unlock()
	lsn, err := e.retire(fp)
	if err != nil {
		return e.goneForGood(err, e.barrier)
	}
	if err := e.barrier(lsn); err != nil {
		return err
	}
	return e.reclaimLocked(ctx)
}

// goneForGood returns err, which may say that there is no such thing, when that is made durable: what took it, another call, may not be
// there yet.
func (e *engine) goneForGood(err error, durable func(lsn uint64) error) error {
	if !errors.Is(err, ErrNotFound) || e.wal == nil {
		return err
	}
	if serr := durable(e.wal.LastLSN()); serr != nil {
		return serr
	}
	return err
}

func (e *engine) retire(fp kv.Fingerprint) (uint64, error) {
	// The gate keeps puts of this model from adding segments meanwhile.
	e.gate.Lock()
	defer e.gate.Unlock()
	e.logMu.Lock()
	defer e.logMu.Unlock()
	if e.catalog.Model(fp) == nil {
		return 0, fmt.Errorf("%w: model %s", ErrNotFound, fp)
	}
	if err := e.poisoned(); err != nil { // before segments are looked at, which may not be possible any more
		return 0, err
	}
	op := oplog.Retire{Model: fp}
	for _, s := range e.set.Segments() {
		if mine, err := e.holdsModel(s.ID, fp); err != nil {
			return 0, err
		} else if !mine {
			continue
		}
		if s.Active { // should the model come back, its records must not go to a file that is to be unlinked
			if err := e.set.Seal(s.ID); err != nil {
				return 0, err
			}
		}
		op.Segments = append(op.Segments, s.ID)
	}
	lsn, err := e.commitBoth(func(t *index.Txn) (oplog.Op, error) {
		return op, recovery.RemoveModel(t, fp, func(index.Entry) bool { return true })
	})
	if err != nil {
		return 0, err
	}
	e.set.Forget(fp)
	e.bloomRemoved(1 << 20)
	return lsn, nil
}

// holdsModel reports whether a segment is of that model: each is of one. Where its header is damaged, the index knows.
func (e *engine) holdsModel(id uint64, fp kv.Fingerprint) (mine bool, err error) {
	d, err := e.set.Descriptor(id)
	if err == nil {
		return d.Fingerprint() == fp, nil
	}
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, segments.ErrMissing) {
		return false, err // too many open files, say: what is left out now keeps its tokens and rows
	}
	v := e.view()
	defer v.Release()
	err = v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		mine = x.Loc.Segment == id && x.Model == fp
		return !mine
	})
	return mine, err
}
