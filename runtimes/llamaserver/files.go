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
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slotfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// learn finds out how a server lays out its slot files: by how many caches with rows its model has.
func learn(file []byte) (format state.FileFormat, err error) {
	found := 0
	for _, sections := range []int{1, 2, 0} {
		f, e := state.LearnFile(file, sections)
		switch {
		case e == nil:
			format = f
			found++
		case err == nil:
			err = e
		}
	}
	if found == 1 {
		return format, nil
	}
	return format, errors.Join(err, fmt.Errorf("a slot file can be read in %d ways", found))
}

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
	_, soiling := s.loaded.soiled()
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
		case errors.Is(err, errOtherTokens):
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

// errOtherTokens says that a slot does not hold the prompt that it should.
var errOtherTokens = errors.New("the slot's tokens are not those of the prompt")

// put stores a slot file, and gives the tokens that it held. Of a model with sliding windows that is done checkpoint by checkpoint, since each
// has the window rows of another place.
func (s *served) put(ctx context.Context, m *db.Model, lay *layout, w *saved) ([]int32, error) {
	f, err := lay.format.Parse(w.file.Bytes())
	if err != nil {
		return nil, err
	}
	n := min(len(f.Tokens), len(w.prompt.Tokens))
	if n == 0 {
		return nil, nil // the server has cleared it
	}
	if !slices.Equal(f.Tokens[:n], w.prompt.Tokens[:n]) {
		return nil, errOtherTokens
	}
	prompt := w.prompt.Prefix(n)
	prompt.Tokens = slices.Clone(f.Tokens)
	for i := range f.State.Sections {
		first, end, whole := f.State.Sections[i].Range()
		if i == windowSection {
			if end != len(prompt.Tokens) || !whole {
				return nil, fmt.Errorf("of the window layers the slot has the positions [%d, %d), expected the last ones before %d", first, end, len(prompt.Tokens))
			}
		} else if first != 0 || end != len(prompt.Tokens) || !whole {
			return nil, fmt.Errorf("the slot has the positions [%d, %d), expected [0, %d)", first, end, len(prompt.Tokens))
		}
	}
	if err := lay.checkState(f.Recurrent, len(prompt.Tokens)); err != nil {
		return nil, err
	}
	for _, c := range f.Checkpoints { // each has what the slot has no more: the window, or the state, at another place
		n := int(c.Tokens)
		if n <= 0 || n >= len(prompt.Tokens) {
			continue
		}
		sections, recurrent := sectionsOf(f.State), c.Recurrent
		if lay.window > 0 {
			if c.State == nil || len(c.State.Sections) != 1 {
				continue
			}
			sections[windowSection] = &c.State.Sections[0]
			if first, end, whole := sections[windowSection].Range(); !whole || end != n || first > max(0, n-lay.window) {
				continue
			}
		}
		if lay.checkState(recurrent, n) != nil {
			continue
		}
		if err := s.putRows(ctx, m, prompt.Prefix(n), lay.rows(sections, recurrent, n)); err != nil {
			return nil, err
		}
	}
	return prompt.Tokens, s.putRows(ctx, m, prompt, lay.rows(sectionsOf(f.State), f.Recurrent, len(prompt.Tokens)))
}

// checkState refuses a recurrent state that is not that after n tokens.
func (lay *layout) checkState(part []byte, n int) error {
	if lay.format.Recurrent == nil {
		return nil
	}
	pos, err := lay.format.Recurrent.Parse(part)
	if err == nil && pos+1 != n {
		err = fmt.Errorf("the recurrent state is that after %d tokens, expected %d", pos+1, n)
	}
	return err
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
func (s *served) restore(ctx context.Context, match *db.Match, lay *layout, sl *slot, prompt kv.Prompt) (int, int64, error) {
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

func (s *served) restoreTokens(ctx context.Context, match *db.Match, lay *layout, sl *slot, prompt kv.Prompt, n int) (_ int, _ int64, err error) {
	plan := lay.file(prompt.Tokens[:n], sl.id)
	size := lay.format.Size(plan)
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
		file, _ = lay.format.Build(f.Bytes(), plan)
		return nil
	}); err != nil {
		return 0, 0, fmt.Errorf("slot file %s cannot be written, its disk may be full: %w", f.Path, err)
	}
	got, err := match.Restore(ctx, lay.rows(sectionsOf(file.State), file.Recurrent, n))
	if err != nil || got.Tokens < n {
		return got.Tokens, 0, err
	}
	if err := lay.checkState(file.Recurrent, n); err != nil {
		return 0, 0, err
	}
	if err := vfs.Guard(func() error {
		for _, c := range file.Checkpoints { // it has the rows of the window section
			for layer := range c.State.Sections[0].Layers() {
				for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
					copyRows(c.State.Sections[0].Rows(layer, role), file.State.Sections[windowSection].Rows(layer, role))
				}
			}
		}
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

// copyRows copies rows that lie in the same pieces.
func copyRows(to, from kv.TensorRows) {
	for i := range to.Pieces {
		copy(to.Pieces[i].Mem, from.Pieces[i].Mem)
	}
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
