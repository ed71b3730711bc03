package engine

// What the packages beside the store's own operations need: check, repair, admin.

// BetweenCheckpoints calls do while no checkpoint runs and nothing is destroyed.
func (e *Engine) BetweenCheckpoints(do func()) {
	e.Checkpoints.Lock()
	defer e.Checkpoints.Unlock()
	do()
}

// HoldLog calls do while no file of the log is removed, and nothing appended.
func (e *Engine) HoldLog(do func()) {
	e.Checkpoints.Lock()
	defer e.Checkpoints.Unlock()
	e.Ledger.Lock()
	defer e.Ledger.Unlock()
	do()
}

// Appending keeps checkpoints from beginning until done is called: records that are appended have to be committed before.
func (e *Engine) Appending() (done func()) {
	e.Ledger.Gate.RLock()
	return e.Ledger.Gate.RUnlock
}

// Grew notes bytes that were appended, and reports whether a checkpoint is due.
func (e *Engine) Grew(bytes int64) (due bool) {
	return e.Ledger.Growth.Add(bytes) >= e.o.CheckpointBytes
}
