package together

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/tests/together/truth"
)

// method is how a worker calls one of the public methods, and how often.
type method struct {
	weight int
	do     func(w *worker) error
}

var methodWeights = func() (n int) {
	for _, m := range methods {
		n += m.weight
	}
	return n
}()

var methods = map[string]method{
	"Store.Blocks":        {8, (*worker).blocks},
	"Store.Checkpoint":    {4, func(w *worker) error { return w.s.Checkpoint(w.ctx()) }},
	"Store.Close":         {1, (*worker).reopen},
	"Store.Compact":       {4, (*worker).compact},
	"Store.DeleteRef":     {10, func(w *worker) error { return w.s.DeleteRef(ctx, w.refName()) }},
	"Store.DeleteScope":   {2, (*worker).deleteScope},
	"Store.DeleteScopeID": {1, (*worker).deleteScopeID},
	"Store.Dir":           {1, func(w *worker) error { return same(w.s.Dir(), w.dir) }},
	"Store.Options":       {1, func(w *worker) error { return same(w.s.Options().Policy.Name(), "cost-aware") }},
	"Store.Enter":         {1, (*worker).enter},
	"Store.Identity":      {1, func(w *worker) error { _, err := w.s.Identity(); return err }},
	"Store.IndexProblems": {1, func(w *worker) error { admin.IndexProblems(w.s); return nil }},
	"Store.Log":           {2, func(w *worker) error { _, err := db.Collect(admin.Log(ctx, w.s)); return err }},
	"Store.OnPressure":    {4, (*worker).onPressure},
	"Store.OpenSession":   {8, (*worker).session},
	"Store.Pressure":      {4, (*worker).pressure},
	"Store.ReadSession":   {4, (*worker).readSession},
	"Store.Register":      {4, func(w *worker) error { _, err := w.s.Register(ctx, w.descs[w.r.IntN(len(w.descs))]); return err }},
	"Store.Model":         {4, func(w *worker) error { _, err := w.s.Model(w.model().Fingerprint()); return err }},
	"Store.Models":        {4, func(w *worker) error { _, err := db.Collect(w.s.Models()); return err }},
	"Store.Planes":        {1, (*worker).blocks},
	"Store.Ref":           {8, func(w *worker) error { _, err := w.s.Ref(w.refName()); return err }},
	"Store.Refs":          {4, (*worker).refs},
	"Store.Resume":        {2, func(w *worker) error { return w.s.Resume(ctx) }},
	"Store.Retire":        {1, (*worker).retire},
	"Store.ScopeID":       {1, func(w *worker) error { _, err := w.s.ScopeID("alice"); return err }},
	"Store.Segments":      {4, func(w *worker) error { _, err := db.Collect(admin.Segments(ctx, w.s)); return err }},
	"Store.Sessions":      {4, func(w *worker) error { _, err := db.Collect(w.s.Sessions(ctx)); return err }},
	"Store.Shrink":        {2, func(w *worker) error { _, err := w.s.Shrink(w.ctx(), int64(2+w.r.IntN(4))<<20); return err }},
	"Store.Stats":         {8, func(w *worker) error { _, err := w.s.Stats(); return err }},
	"Store.Suspend":       {2, func(w *worker) error { return errors.Join(w.s.Suspend(ctx), w.s.Resume(ctx)) }},
	"Store.Sync":          {4, func(w *worker) error { return w.s.Sync(w.ctx()) }},
	"Store.Tombstones":    {2, func(w *worker) error { _, err := db.Collect(admin.Tombstones(w.s)); return err }},
	"Store.Verify":        {1, (*worker).verify},
	"Model.Delete":        {8, func(w *worker) error { _, err := w.model().Delete(w.ctx(), w.part(w.prompt())); return err }},
	"Model.Descriptor":    {1, func(w *worker) error { w.model().Descriptor(); return nil }},
	"Model.Explain":       {8, func(w *worker) error { _, err := w.model().Explain(w.ctx(), w.prompt(), db.MatchOptions{}); return err }},
	"Model.Fingerprint":   {1, func(w *worker) error { w.model().Fingerprint(); return nil }},
	"Model.Match":         {200, (*worker).match},
	"Model.Note":          {4, (*worker).note},
	"Model.Notes":         {2, func(w *worker) error { _, err := db.Collect(w.model().Notes()); return err }},
	"Model.Observe":       {4, func(w *worker) error { w.model().Observe(db.Observation{Asked: 1}); return nil }},
	"Model.Prefetch": {8, func(w *worker) error {
		_, err := w.model().Prefetch(w.ctx(), w.prompt(), db.MatchOptions{})
		return err
	}},
	"Model.Probe": {20, func(w *worker) error {
		_, _, err := w.model().Probe(w.ctx(), w.prompt(), db.MatchOptions{})
		return err
	}},
	"Model.Put": {60, (*worker).put},
	"Model.SetNote": {8, func(w *worker) error {
		return w.model().SetNote(w.ctx(), w.noteName(), []byte(w.noteName())[:w.r.IntN(7)])
	}},
	"Model.SetRef": {16, (*worker).setRef},
	"Match.Close":  {50, (*worker).close},
	"Match.Extend": {40, (*worker).extend},
	"Match.Prompt": {1, func(w *worker) error { return w.matched(func(h *shared) error { h.x.Prompt(); return nil }) }},
	"Match.Reason": {2, func(w *worker) error {
		return w.matched(func(h *shared) error { _ = h.x.Reason().String(); return nil })
	}},
	"Match.Restore":       {240, (*worker).restore},
	"Match.RestoreLayers": {60, (*worker).restoreLayers},
	"Match.RestoreRange":  {40, (*worker).restoreRange},
	"Match.StateBytes":    {8, (*worker).stateBytes},
	"Match.Tokens":        {2, func(w *worker) error { return w.matched(func(h *shared) error { h.x.Tokens(); return nil }) }},
	"Match.View":          {60, (*worker).view},
}

func same(got, want string) error {
	if got != want {
		return fmt.Errorf("%q, expected %q", got, want)
	}
	return nil
}

func (w *worker) refName() string { return fmt.Sprint("ref ", w.r.IntN(6)) }

// blocks lists the store and uses it from within the loop.
func (w *worker) blocks() error {
	n := w.r.IntN(40)
	for b, err := range w.s.Blocks(ctx) {
		if err != nil {
			return err
		}
		if n--; n < 0 {
			return nil
		}
		var err2 error
		switch w.r.IntN(6) {
		case 0:
			err2 = w.put()
		case 1:
			err2 = w.s.Checkpoint(ctx)
		case 2:
			_, _, err2 = w.model().Probe(ctx, w.prompt(), db.MatchOptions{})
		default:
			if _, err2 = db.Collect(admin.Planes(ctx, w.s, b)); err2 != nil {
				err2 = nil // the record may be gone, and its place another's by now
			}
		}
		if err2 != nil && !allowed(err2) {
			return err2
		}
	}
	return nil
}

func (w *worker) compact() error {
	_, err := w.s.Compact(w.ctx(), db.CompactOptions{All: true, Progress: func(db.Progress) { w.s.Stats() }})
	return err
}

// onPressure has pressures of others use the store for a while.
func (w *worker) onPressure() error {
	stop := w.s.OnPressure(func(ctx context.Context, _ db.Pressure) error {
		_, err := w.s.Stats()
		return err
	})
	defer stop()
	return w.match()
}

func (w *worker) pressure() error {
	level := db.Moderate
	switch w.r.IntN(16) {
	case 0:
		level = db.Critical
	case 1, 2, 3, 4:
		level = db.Low
	}
	_, err := w.s.Pressure(w.ctx(), level)
	return err
}

func (w *worker) deleteScope() error {
	_, err := w.s.DeleteScope(ctx, []string{"alice", "bob"}[w.r.IntN(2)])
	return err
}

func (w *worker) deleteScopeID() error {
	id, err := w.s.ScopeID([]string{"alice", "bob"}[w.r.IntN(2)])
	if err == nil {
		_, err = w.s.DeleteScopeID(ctx, id)
	}
	return err
}

// session appends to a scope's session, while others delete the scope, and reads it.
func (w *worker) session() error {
	x, err := w.s.OpenSession(w.ctx(), []string{"alice", "bob"}[w.r.IntN(2)])
	for i := 0; err == nil && i < 3; i++ {
		err = x.Append(w.ctx(), 1, make([]byte, w.r.IntN(1000)))
	}
	if err == nil && x.Bytes() > 64<<10 {
		err = x.Replace(w.ctx(), nil)
	}
	if err == nil {
		_, err = db.Collect(x.Frames(ctx))
	}
	if x != nil {
		err = errors.Join(err, x.Close())
	}
	for _, ok := range []error{db.ErrSessionOpen, db.ErrStale, db.ErrNotDestroyed} {
		if errors.Is(err, ok) {
			return nil
		}
	}
	return err
}

func (w *worker) readSession() error {
	id, err := w.s.ScopeID([]string{"alice", "bob"}[w.r.IntN(2)])
	if err == nil {
		_, err = db.Collect(w.s.ReadSession(ctx, id))
	}
	return err
}

func (w *worker) refs() error {
	all, err := db.Collect(w.s.Refs())
	if err != nil {
		return err
	}
	for _, r := range all {
		if _, err := w.s.Ref(r.Name); err != nil && !allowed(err) {
			return err
		}
	}
	return nil
}

func (w *worker) retire() error {
	d := w.descs[len(w.descs)-1]
	err := w.s.Retire(ctx, w.models[len(w.models)-1].Fingerprint())
	_, err2 := w.s.Register(ctx, d)
	for errors.Is(err2, db.ErrSuspended) {
		_, err2 = w.s.Register(ctx, d)
	}
	return errors.Join(err, err2)
}

func (w *worker) verify() error {
	r, err := admin.VerifyStore(w.ctx(), w.s, admin.VerifyOptions{Progress: func(db.Progress) { w.s.Stats() }})
	if err == nil && len(r.Damage) > 0 {
		return fmt.Errorf("%d damaged places, %w", len(r.Damage), r.Damage[0])
	}
	return err
}

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

func (w *worker) enter() error {
	_, leave, err := w.s.Enter(w.ctx())
	if err == nil {
		leave()
	}
	return err
}
