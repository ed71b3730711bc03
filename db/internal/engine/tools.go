package engine

import "context"

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

// Using lets do use the engine of an open *db.Store as one operation of it. Package db sets it: so the tools of package admin, and tests, reach
// what lies below a store that db has let them open.
var Using func(store any, do func(*Engine) error) error

// Hidden is what db.Open takes from its context and db.Options do not show.
type Hidden struct {
	KeepOut      bool  // a store that is opened read-only keeps writers out, so that its files stay as they are
	LogAhead     int64 // bounds what is reserved ahead in the log; 0: by the budget alone
	CompactLeast int64 // bytes that rewriting segments must give back in all, or Compact leaves them
}

type hiddenKey struct{}

// With is a context for db.Open.
func With(ctx context.Context, h Hidden) context.Context {
	return context.WithValue(ctx, hiddenKey{}, h)
}

// HiddenOf is what With put into a context.
func HiddenOf(ctx context.Context) Hidden {
	h, _ := ctx.Value(hiddenKey{}).(Hidden)
	return h
}
