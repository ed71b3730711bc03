package together

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
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

func (w *worker) enter() error {
	_, leave, err := w.s.Enter(w.ctx())
	if err == nil {
		leave()
	}
	return err
}
