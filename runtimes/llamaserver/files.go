package llamaserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slotfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// saved is a slot on its way into the store.
type saved struct {
	file   *slotfile.File
	prompt kv.Prompt // what it was known to hold
	done   chan struct{}
}

// save has the server write a slot, and stores what is in it, in the background. The caller has the turn.
func (s *served) save(ctx context.Context, sl *slot) {
	s.mu.Lock()
	prompt, e, kind, id := sl.prompt, sl.endpoint, sl.kind, sl.id
	sl.unsaved = false
	m, lay := s.model, s.lay
	left := sl.left
	alone := !s.watch && s.foreign == 0 && s.passages == sl.foreign
	adapted := len(s.adapters) > 0
	s.mu.Unlock()
	if m == nil || len(prompt.Tokens) < trial.FewTokens || s.gone.Load() {
		return
	}
	if s.watch && s.replaced(ctx) {
		return
	}
	if err := s.own(ctx, sl); err != nil {
		s.later(sl, err)
		return
	}
	_, soiling := s.loaded.Soiled()
	if soiling || !alone && (adapted || s.taken(ctx, sl)) { // the same tokens under another adapter, or shifted, are other rows
		return
	}
	again := func() { // the client went whose request would have taken it: only this slot has it still
		s.mu.Lock()
		defer s.mu.Unlock()
		if ctx.Err() != nil && len(sl.prompt.Tokens) == len(prompt.Tokens) && common(sl.prompt, prompt) == len(prompt.Tokens) {
			sl.unsaved = true
		}
	}
	select { // what waits to be stored takes memory
	case s.puts <- struct{}{}:
	case <-ctx.Done():
		again()
		return
	}
	f, _, err := s.saveSlot(ctx, id)
	if err == nil {
		if e := s.own(ctx, sl); e != nil { // a change came between
			s.folder.Done(f)
			<-s.puts
			s.later(sl, e)
			return
		}
	}
	if err != nil {
		<-s.puts
		again()
		s.log.Warn("saving a slot: it will be computed again", "slot", id, "tokens", len(prompt.Tokens), "err", err)
		return
	}
	if left {
		s.holds(sl, f, lay)
	}
	w := &saved{f, prompt, make(chan struct{})}
	s.mu.Lock()
	s.pending = append(s.pending, w)
	s.mu.Unlock()
	s.wait.Add(1)
	go func() {
		defer s.wait.Done()
		defer func() {
			s.folder.Done(f)
			s.mu.Lock()
			s.pending = slices.DeleteFunc(s.pending, func(x *saved) bool { return x == w })
			s.mu.Unlock()
			close(w.done)
			<-s.puts
		}()
		tokens, err := s.put(context.Background(), m, lay, w)
		switch {
		case errors.Is(err, layout.ErrOtherTokens):
			if alone && !left && e.Pins() { // else another request has been there
				s.differs(kind, err)
			}
			s.mu.Lock()
			if !sl.busy && common(sl.prompt, prompt) == len(prompt.Tokens) {
				sl.forget()
			}
			s.mu.Unlock()
		case errors.Is(err, state.ErrBlob): // the server lays them out in another way than it did
			if err := m.SetNote(context.Background(), s.note, nil); err != nil {
				s.log.Warn("forgetting how slot files look", "err", err)
			}
			s.log.Warn("the slot files look otherwise than before: the server is looked at anew", "err", err)
			s.front.reset()
		case errors.Is(err, db.ErrNoSpace): // it is said when that begins
		case err != nil:
			s.log.Warn("storing a slot", "slot", id, "tokens", len(prompt.Tokens), "err", err)
			s.front.wakes(err)
		default: // the slot is known to its end, if nobody has taken it meanwhile
			s.mu.Lock()
			s.differ.Worked(kind)
			if !sl.busy && len(sl.prompt.Tokens) > 0 && common(sl.prompt, prompt) == len(prompt.Tokens) && len(sl.prompt.Tokens) == len(prompt.Tokens) {
				sl.prompt.Tokens = tokens
			}
			s.mu.Unlock()
		}
	}()
}

// differs counts a prompt of which the server has made other tokens than the front. Once is nothing: a template that says the time does that.
func (s *served) differs(kind string, err error) {
	s.mu.Lock()
	rests := s.differ.Failed(kind)
	s.mu.Unlock()
	s.log.Warn("the server has made other tokens of a prompt than the front", "kind", kind, "err", err)
	if rests {
		s.log.Warn("the server makes other tokens of such prompts than the front: they pass for a while", "kind", kind)
	}
}

// put stores a slot file, and returns the tokens that it held.
func (s *served) put(ctx context.Context, m *db.Model, lay *layout.Layout, w *saved) ([]int32, error) {
	held, parts, err := lay.Parts(w.file.Bytes(), w.prompt)
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		if err := s.putRows(ctx, m, p.Prompt, p.Rows); err != nil {
			return nil, err
		}
	}
	return held, nil
}

func (s *served) putRows(ctx context.Context, m *db.Model, prompt kv.Prompt, rows kv.Rows) error {
	d := m.Descriptor()
	for i := range rows { // of the All group, those of the prefix
		if d.Groups[d.Tensors[i].Group].Kind == kv.All {
			rows[i] = rows[i].Slice(d.Tensors[i], 0, len(prompt.Tokens))
		}
	}
	_, err := m.Put(ctx, prompt, rows, db.PutOptions{})
	s.front.put(err)
	return err
}

// settled waits for saves under way that may hold more of a prompt than the slot does.
func (s *served) settled(ctx context.Context, prompt kv.Prompt, held int) {
	s.stored(ctx, func(w *saved) bool { return common(w.prompt, prompt) > held+trial.FewTokens })
}

// stored waits for saves under way.
func (s *served) stored(ctx context.Context, which func(*saved) bool) {
	s.mu.Lock()
	var wait []*saved
	for _, w := range s.pending {
		if which(w) {
			wait = append(wait, w)
		}
	}
	s.mu.Unlock()
	for _, w := range wait {
		select {
		case <-w.done:
		case <-ctx.Done():
			return
		}
	}
}

// restore writes a slot file of a match and has the server read it. It gives the tokens that the slot holds, and the file's size.
func (s *served) restore(ctx context.Context, match *db.Match, lay *layout.Layout, sl *slot, prompt kv.Prompt) (int, int64, error) {
	for {
		n := match.Tokens()
		if n < trial.FewTokens {
			return 0, 0, nil
		}
		got, size, err := s.restoreTokens(ctx, match, lay, sl, prompt, n)
		if err == nil && got < n { // damage
			continue
		}
		return got, size, err
	}
}

func (s *served) restoreTokens(ctx context.Context, match *db.Match, lay *layout.Layout, sl *slot, prompt kv.Prompt, n int) (_ int, _ int64, err error) {
	plan := lay.File(prompt.Tokens[:n], sl.id)
	size := lay.Format.Size(plan)
	f, err := s.folder.Create(int64(size))
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		if err != nil { // the server may read it later
			f.Close()
		} else {
			s.folder.Done(f)
		}
	}()
	var file *state.File
	if err := vfs.Guard(func() error { // where slot files lie on a disk, that may be full
		file, _ = lay.Format.Build(f.Bytes(), plan)
		return nil
	}); err != nil {
		return 0, 0, fmt.Errorf("slot file %s cannot be written, its disk may be full: %w", f.Path, err)
	}
	got, err := match.Restore(ctx, lay.RowsOf(file, n))
	if err != nil || got.Tokens < n {
		return got.Tokens, 0, err
	}
	if err := lay.CheckState(file.Recurrent, n); err != nil {
		return 0, 0, err
	}
	if err := vfs.Guard(func() error {
		lay.CopyWindows(file)
		return nil
	}); err != nil {
		return 0, 0, fmt.Errorf("slot file %s cannot be written, its disk may be full: %w", f.Path, err)
	}
	done, err := s.api.Act(ctx, "restore", sl.id, f.Name)
	if err != nil && s.makeRoom(ctx, sl) { // other slots had the cells
		done, err = s.api.Act(ctx, "restore", sl.id, f.Name)
	}
	if err != nil {
		return 0, 0, err
	}
	if done.Restored != n {
		return 0, 0, fmt.Errorf("the server restored %d tokens of %d", done.Restored, n)
	}
	return n, int64(size), nil
}

// makeRoom empties the idle slots: what they held is stored. It reports whether there were any.
func (s *served) makeRoom(ctx context.Context, sl *slot) (any bool) {
	s.mu.Lock()
	var idle []*slot
	for _, other := range s.slots {
		if other != sl && !other.busy && len(other.prompt.Tokens) > 0 {
			idle = append(idle, other)
			other.forget()
		}
	}
	s.mu.Unlock()
	for _, other := range idle {
		if err := s.api.Erase(ctx, other.id); err == nil {
			any = true
		}
	}
	return any
}
