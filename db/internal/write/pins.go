package write

import (
	"errors"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/kv"
)

// hold pins the block that block i hangs from, so that it stays until i is published.
func (w *Put) hold(i int) error {
	if i == 0 {
		return nil
	}
	parent := w.Chain.Parent(i)
	if !w.store.Pins.Pin(&w.pin, parent) {
		return w.gone(i)
	}
	v := w.store.Search.Index.View()
	defer v.Release()
	if _, ok, err := v.Get(parent, 0); err != nil || !ok {
		return errors.Join(err, w.gone(i))
	}
	return nil
}

// rest moves this put's pin to a block that is stored.
func (w *Put) rest(k kv.Key) {
	if w.idle() {
		w.store.Pins.Pin(&w.pin, k)
	}
}

// Release ends the put: it does not rest on anything any more.
func (w *Put) Release() { w.store.Pins.Unpin(&w.pin) }

// own are the pins of this put, and of the match that it extends.
func (w *Put) own() []*lease.Pin {
	own := append([]*lease.Pin{&w.pin, &w.coming}, w.lentPins...)
	if w.extends != nil {
		own = append(own, w.extends.Pins()...)
	}
	return own
}

func (w *Put) gone(i int) error {
	start, _ := w.Chain.Block(i)
	return &kv.NotStoredError{Stored: 0, Needed: start, Reason: kv.Reason{Code: kv.Gone, At: start}}
}

// lend notes that this put holds only if block k is still stored when it is published: rows of k are copied into a record, or
// k is a part of the prompt that another put stored. It fails if k is on its way out.
func (w *Put) lend(k kv.Key) bool {
	if slices.Contains(w.lent, k) {
		return true
	}
	pin := new(lease.Pin)
	if !w.store.Pins.Pin(pin, k) { // so that no longer block takes its place meanwhile
		return false
	}
	w.lent, w.lentPins = append(w.lent, k), append(w.lentPins, pin)
	return true
}

// giveBack ends what lend began.
func (w *Put) giveBack() {
	w.store.Pins.Unpin(w.lentPins...)
	w.lent, w.lentPins = nil, nil
}

// enter closes the publish gate to checkpoints until the batch is published or given up.
func (w *Put) enter() {
	if !w.gated {
		w.store.Ledger.Gate.RLock()
		w.store.Rows.Workers.Puts.Enter()
		w.gated = true
	}
}

// openGate ends what enter began: a panic must not close it for ever.
func (w *Put) openGate() {
	if w.gated {
		w.gated = false
		w.store.Rows.Workers.Puts.Leave()
		w.store.Ledger.Gate.RUnlock()
	}
}
