package db

import (
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/kv"
)

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
