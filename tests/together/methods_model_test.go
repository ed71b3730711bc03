package together

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/tests/together/truth"
)

func (w *worker) putOptions(d *kv.Descriptor) db.PutOptions {
	o := db.PutOptions{Codec: []quant.Codec{0, quant.Q8_0, quant.Raw, quant.ByteSplit}[w.r.IntN(4)]}
	if d.Name == "windowed" {
		o.Compression = []quant.Compression{0, quant.S2, quant.Zstd}[w.r.IntN(3)]
	}
	o.NoStore = w.r.IntN(40) == 0
	return o
}

func (w *worker) put() error {
	m, p := w.model(), w.prompt()
	d := m.Descriptor()
	_, err := m.Put(w.ctx(), p, truth.Filled(&d, &p, 0, len(p.Tokens)), w.putOptions(&d))
	return err
}

func (w *worker) setRef() error {
	p := w.prompt()
	if p = p.Prefix(p.Clip(16 + w.r.IntN(len(p.Tokens)-15))); len(p.Tokens) < 16 {
		return nil
	}
	o := db.RefOptions{Pinned: w.r.IntN(2) == 0, Priority: uint8(w.r.IntN(3))}
	if w.r.IntN(2) == 0 {
		o.TTL = time.Duration(1+w.r.IntN(100)) * time.Millisecond
	}
	return w.model().SetRef(w.ctx(), w.refName(), p, o)
}

// match looks for a prompt, and leaves the match to all.
func (w *worker) match() error {
	m, p := w.model(), w.prompt()
	o := db.MatchOptions{NoLookup: w.r.IntN(40) == 0}
	if w.r.IntN(3) == 0 {
		o.Limit = 1 + w.r.IntN(len(p.Tokens))
	}
	x, err := m.Match(w.ctx(), p, o)
	if err != nil {
		return err
	}
	h := &shared{x: x, desc: m.Descriptor()}
	w.mu.Lock()
	w.pool = append(w.pool, h)
	many := len(w.pool) > 12
	w.mu.Unlock()
	if many {
		return w.close()
	}
	return nil
}

func (w *worker) close() error {
	h := w.taken()
	if h == nil {
		return nil
	}
	return errors.Join(h.x.Close(), h.x.Close())
}

func (w *worker) extend() error {
	return w.matched(func(h *shared) error {
		p := h.x.Prompt()
		if n := h.x.Tokens(); w.r.IntN(2) == 0 && len(p.Tokens) < 200 {
			p.Tokens = append(p.Tokens[:len(p.Tokens):len(p.Tokens)], truth.Tokens(uint64(100+w.r.IntN(40)), 30)[:1+w.r.IntN(30)]...)
		} else if n == len(p.Tokens) {
			return nil
		}
		_, err := h.x.Extend(w.ctx(), p, truth.Filled(&h.desc, &p, h.x.Tokens(), len(p.Tokens)), w.putOptions(&h.desc))
		return err
	})
}

func (w *worker) restore() error {
	return w.matched(func(h *shared) error { return w.compare(h, nil) })
}

// restoreLayers uses the store from the callback.
func (w *worker) restoreLayers() error {
	return w.matched(func(h *shared) error {
		least := 1 << 30
		return w.compare(h, func(layer, tokens int) {
			if tokens > least {
				w.t.Errorf("layer %d: %d tokens are good, of the layer before %d", layer, tokens, least)
			}
			least = tokens
			if _, _, err := w.models[0].Probe(ctx, w.prompt(), db.MatchOptions{}); err != nil && !allowed(err) {
				w.t.Error(err)
			}
		})
	})
}

// compare restores a match and compares every row with the truth.
func (w *worker) compare(h *shared, ready func(layer, tokens int)) error {
	p := h.x.Prompt()
	n := len(p.Tokens)
	if w.r.IntN(4) == 0 {
		n = 1 + w.r.IntN(n)
	}
	rows := truth.Empty(&h.desc, n)
	got, err := h.x.RestoreLayers(w.ctx(), rows, ready)
	if ready == nil && err == nil {
		rows = truth.Empty(&h.desc, n)
		got, err = h.x.Restore(w.ctx(), rows)
	}
	if err != nil {
		return err
	}
	w.restores.Add(1)
	w.tokens.Add(int64(got.Tokens))
	return truth.Check(&h.desc, &p, rows, got.Tokens)
}

// restoreRange restores a match in two pieces: what both gave is the truth.
func (w *worker) restoreRange() error {
	return w.matched(func(h *shared) error {
		p := h.x.Prompt()
		n := min(len(p.Tokens), h.x.Tokens())
		if n == 0 || len(h.desc.Groups) > 1 { // windows and states are for whole restores
			return nil
		}
		rows := truth.Empty(&h.desc, n)
		got := n
		cut := w.r.IntN(n + 1)
		for _, r := range [][2]int{{0, cut}, {cut, n}} {
			piece := make(kv.Rows, len(rows))
			for i, t := range h.desc.Tensors {
				piece[i] = rows[i].Slice(t, r[0], r[1])
			}
			x, err := h.x.RestoreRange(w.ctx(), piece)
			if err != nil {
				return err
			}
			got = min(got, x.Tokens)
		}
		if got == 0 {
			return nil // nothing is left to compare
		}
		for i, t := range h.desc.Tensors { // what an earlier call gave beyond must not be used
			rows[i] = rows[i].Slice(t, 0, got)
		}
		return truth.Check(&h.desc, &p, rows, got)
	})
}

func (w *worker) noteName() string { return fmt.Sprint("note ", w.r.IntN(4)) }

// note reads what setNote wrote: a beginning of one of its names.
func (w *worker) note() error {
	value, err := w.model().Note(w.noteName())
	if err == nil && (len(value) == 0 || !bytes.HasPrefix([]byte("note 0"), value[:min(5, len(value))])) {
		return fmt.Errorf("a note reads %q", value)
	}
	return err
}

func (w *worker) stateBytes() error {
	return w.matched(func(h *shared) error {
		n, err := h.x.StateBytes(0)
		if err == nil && n != 0 && (n < 100 || n >= 150) {
			return fmt.Errorf("a state of %d bytes", n)
		}
		return err
	})
}

// view looks at the planes where they lie, and uses the store meanwhile.
func (w *worker) view() error {
	return w.matched(func(h *shared) error {
		p := h.x.Prompt()
		right := truth.Filled(&h.desc, &p, 0, len(p.Tokens))
		err := h.x.View(w.ctx(), func(v db.StoredPlane) error {
			if _, err := w.s.Stats(); err != nil && !allowed(err) {
				return err
			}
			size := h.desc.Tensors[v.Tensor].RowBytes()
			if v.Codec != quant.Raw || h.desc.Name == "windowed" {
				return nil
			}
			if want := right[v.Tensor].Pieces[0].Mem[v.First*size : (v.First+v.Rows)*size]; !bytes.Equal(v.Bytes[:v.Rows*size], want) {
				return fmt.Errorf("rows [%d, %d) of tensor %d are wrong where they lie", v.First, v.First+v.Rows, v.Tensor)
			}
			return nil
		})
		if errors.Is(err, db.ErrCorrupt) {
			return fmt.Errorf("view: %w", err)
		}
		return err
	})
}
