package db

import "github.com/dormousekv/dormouse/segments"

// A glance is a lease of the store's own, for a moment: to compare a block, or to copy a record. What only glances keep comes back
// at once, so nobody is told for it that there is no room.

func (e *engine) glance() *segments.Lease {
	e.glances.RLock()
	return e.set.Glance()
}

func (e *engine) endGlance(l *segments.Lease) {
	l.Release()
	e.glances.RUnlock()
}

// awaitGlances returns when all glances are over that there are now. The caller holds no lock: not the gate, and no glance.
func (e *engine) awaitGlances() {
	e.glances.Lock()
	//lint:ignore SA2001 those who come later see nothing of what is doomed by now
	e.glances.Unlock()
}
