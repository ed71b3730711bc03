package db

import (
	"context"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/kv"
)

// What outlives blocks, models, refs and notes, is repeated at the head of every log file, which is one frame. It is bounded where it
// is registered, so that the head always fits: the rest of the frame is for the records that wait to be destroyed.

const (
	// MaxDescriptorBytes bounds a model's descriptor: its strings, 48 bytes for a tensor, 24 for a group, and 512.
	MaxDescriptorBytes = 1 << 20
	// MaxModels bounds how many models a store has.
	MaxModels = 1 << 12
	// MaxHeadBytes bounds what all models, refs and notes of a store take together: descriptors, names, metadata and values.
	MaxHeadBytes = 32 << 20
)

// headBytes is what models, refs and notes take in the head of the log. The caller holds stateMu.
func (s *smallState) headBytes() int64 { return s.modelBytes + s.refBytes + s.noteBytes }

// headFits refuses to let what comes take so many more bytes of the head than what goes. The caller holds stateMu.
func (s *smallState) headFits(what string, comes, goes int64) error {
	if total := s.headBytes() + comes - goes; comes > goes && total > MaxHeadBytes {
		return fmt.Errorf("%w: models, refs and notes take %d bytes with %s of %d, at most %d: %d models take %d, %d refs %d, and notes %d",
			ErrLimit, total, what, comes, MaxHeadBytes, len(s.models), s.modelBytes, len(s.refs), s.refBytes, s.noteBytes)
	}
	return nil
}

// headFits is that of the state as it is now.
func (e *engine) headFits(what string, comes, goes int64) error {
	e.stateMu.RLock()
	defer e.stateMu.RUnlock()
	return e.state.headFits(what, comes, goes)
}

// descriptorFits refuses a descriptor that takes over MaxDescriptorBytes.
func descriptorFits(d *kv.Descriptor) error {
	size := 512 + len(d.Name) + len(d.Architecture) + len(d.RoPE.Type) + len(d.RoPE.Scaling) + len(d.StateFormat) +
		24*len(d.Groups) + 48*len(d.Tensors)
	if size > MaxDescriptorBytes {
		return fmt.Errorf("%w: %w: %.40q takes %d bytes, at most %d", kv.ErrDescriptor, ErrLimit, d.Name, size, MaxDescriptorBytes)
	}
	return nil
}

// reserveState reserves room for a model or note, of which there will be one in the log, one in the head of the next log file and one in
// the index. Others make way. The caller gives it up when the log has it.
func (e *engine) reserveState(ctx context.Context, room int64) error {
	e.measureOnce()
	if e.space.reserve(room, e.o.Budget-e.reserveBytes()) {
		return nil
	}
	return e.makeRoom(ctx, room, 0)
}

// modelFits refuses a model that would make the head of the log too large.
func (e *engine) modelFits(op oplog.Model) error {
	name, size := op.Name, op.Bytes()
	e.stateMu.RLock()
	defer e.stateMu.RUnlock()
	var goes int64
	old := e.state.models[op.Fingerprint]
	if old != nil { // it becomes the latest version of its name again
		goes = old.Bytes()
	}
	if n := len(e.state.models); old == nil && n >= MaxModels {
		return fmt.Errorf("%w: it has %d models, and can have no more than %d: Retire makes room for %.40q", ErrLimit, n, MaxModels, name)
	}
	return e.state.headFits(fmt.Sprintf("model %.40q", name), size, goes)
}
