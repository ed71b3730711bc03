package remove

import (
	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/kv"
)

// Steps is the deletion of a prefix, a frame with each call, for tests.
func (r *Remover) Steps(m *catalog.Model, prefix *kv.Prompt) func(out *Deleted) (more bool, err error) {
	what := r.removalOf(m, prefix)
	return func(out *Deleted) (bool, error) {
		_, more, err := r.deleteSome(what, out)
		return more, err
	}
}

// Batches are the records that one log frame removes, and those that wait to be destroyed, at most, while a deletion goes on.
func Batches() (frame, waiting int) { return removeBatch, reclaimBatch }

// SetBatches changes them until reset is called; 0: as it is.
func SetBatches(frame, waiting int) (reset func()) {
	f, w := removeBatch, reclaimBatch
	if frame > 0 {
		removeBatch = frame
	}
	if waiting > 0 {
		reclaimBatch = waiting
	}
	return func() { removeBatch, reclaimBatch = f, w }
}
