package db

import (
	"errors"

	"github.com/dormousekv/dormouse/kv"
)

// hold pins the block that block i hangs from, so that it stays until i is published.
func (w *putter) hold(i int) error {
	if i == 0 {
		return nil
	}
	parent := w.chain.Parent(i)
	if !w.e.pins.Pin(parent) {
		return w.gone(i)
	}
	w.unpin()
	w.pin = parent
	v := w.e.view()
	defer v.Release()
	if _, ok, err := v.Get(parent, 0); err != nil || !ok {
		return errors.Join(err, w.gone(i))
	}
	return nil
}

// rest moves this put's pin to a block that is stored.
func (w *putter) rest(k kv.Key) {
	if w.idle() && w.e.pins.Pin(k) {
		w.unpin()
		w.pin = k
	}
}

func (w *putter) unpin() {
	if !w.pin.IsZero() {
		w.e.pins.Unpin(w.pin)
		w.pin = kv.Key{}
	}
}

func (w *putter) gone(i int) error {
	start, _ := w.chain.Block(i)
	return &NotStoredError{Stored: 0, Needed: start, Reason: Reason{Code: Gone, At: start}}
}
