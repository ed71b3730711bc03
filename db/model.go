package db

import (
	"context"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/kv"
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
	e, err := s.enter(context.Background())
	if err != nil {
		return nil, err
	}
	defer s.leave()
	ms := e.Catalog.Model(fp)
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
	if err := desc.Validate(); err != nil {
		return Registered{}, err
	}
	desc, err := desc.Normal()
	if err != nil {
		return Registered{}, err
	}
	if err := descriptorFits(&desc); err != nil {
		return Registered{}, err
	}
	e, err := s.enter(ctx)
	if err != nil {
		return Registered{}, err
	}
	defer s.leave()
	got, err := e.Register(ctx, &desc)
	if err != nil {
		return Registered{}, s.checkIndex(err)
	}
	out := Registered{Model: &Model{s: s, ms: got.Model}, Differs: got.Differs}
	if got.Superseded != nil {
		out.Superseded = got.Superseded.Fingerprint
	}
	return out, nil
}

// Descriptor returns the model's descriptor in normal form.
func (m *Model) Descriptor() kv.Descriptor { return m.ms.Desc }

// Fingerprint names this version of the model.
func (m *Model) Fingerprint() kv.Fingerprint { return m.ms.Fingerprint }

// enter is Store.enter, and checks that the model was not retired.
func (m *Model) enter(ctx context.Context) (*engine.Engine, error) {
	e, err := m.s.enter(ctx)
	if err != nil {
		return nil, err
	}
	if !e.Catalog.Has(m.ms) {
		m.s.leave()
		return nil, fmt.Errorf("%w: %s %s", ErrRetired, m.ms.Name, m.ms.Fingerprint)
	}
	return e, nil
}

func (m *Model) leave() { m.s.leave() }

// Retire drops a version of a model at once: its blocks and its refs, as one log frame. It returns when that is
// durable; the space comes back when no open match can see it. ErrNotFound if there is no such model. After [ErrIndexDamaged] it may be retired: call
// it again, and take ErrNotFound for success.
func (s *Store) Retire(ctx context.Context, fp kv.Fingerprint) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.leave()
	return s.checkIndex(e.Remover.Retire(ctx, fp))
}

const (
	// MaxDescriptorBytes bounds a model's descriptor: its strings, 48 bytes for a tensor, 24 for a group, and 512.
	MaxDescriptorBytes = 1 << 20
	// MaxModels bounds how many models a store has.
	MaxModels = catalog.MaxModels
	// MaxHeadBytes bounds what all models, refs and notes of a store take together: descriptors, names, metadata and values.
	MaxHeadBytes = catalog.MaxHeadBytes
)

// descriptorFits refuses a descriptor that takes over MaxDescriptorBytes.
func descriptorFits(d *kv.Descriptor) error {
	size := 512 + len(d.Name) + len(d.Architecture) + len(d.RoPE.Type) + len(d.RoPE.Scaling) + len(d.StateFormat) +
		24*len(d.Groups) + 48*len(d.Tensors)
	if size > MaxDescriptorBytes {
		return fmt.Errorf("%w: %w: %.40q takes %d bytes, at most %d", kv.ErrDescriptor, ErrLimit, d.Name, size, MaxDescriptorBytes)
	}
	return nil
}
