package db

import (
	"errors"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A deletion and a ref name what lies below the blocks of a prompt, as a put does: where one of those is another prompt's with
// the same key, they name nothing.

// comparer is a put of p that stores nothing: it compares.
func (m *Model) comparer(e *engine, p *kv.Prompt) *putter {
	d := &m.ms.desc
	w := &putter{e: e, m: m, p: *p, chain: e.hasher.Chain(m.ms.Fingerprint, d.BlockTokens, p)}
	w.seen = make([]index.Loc, w.chain.Len())
	copy(w.seen, e.compared.of(m.ms.Fingerprint, p, d.BlockTokens))
	return w
}

// collides returns what compare says about a block among the first n that is another prompt's. One that cannot be read, and that
// the index does not know to the end, is taken to be this one's: what was damaged must be possible to delete.
func (w *putter) collides(v childReader, n int) error {
	for i := range n {
		x, ok, err := v.Get(w.chain.Key(i), 0)
		if err == nil && ok {
			err = w.compare(v, i, x)
		}
		var not *NotStoredError
		if err != nil && !(errors.As(err, &not) && not.Reason.Code != Collision) {
			return err
		}
	}
	return nil
}

// collidesNow is collides for what is stored at the moment.
func (w *putter) collidesNow(n int) error {
	lease := w.e.glance()
	defer w.e.endGlance(lease)
	v := w.e.view()
	defer v.Release()
	return w.collides(v, n)
}

func isCollision(err error) bool {
	var not *NotStoredError
	return errors.As(err, &not) && not.Reason.Code == Collision
}
