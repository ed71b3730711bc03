package write

import (
	"errors"

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
