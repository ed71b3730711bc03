package llamaserver

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slotfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// saver has the server write its slots into files, and stores what is in them.
type saver struct {
	model  *db.Model
	lay    *layout.Layout
	note   string // where the model remembers how slot files look
	table  *slots.Table
	look   *slots.Look
	files  *weights.Files
	guard  *guard
	life   *life
	reach  *reach
	shelf  *shelf
	unlike *unlike
	log    *slog.Logger
	work   *sync.WaitGroup

	watch     bool          // the server changes without the front
	adapters  bool          // the server has some
	keepsIdle bool          // it keeps idle slots when a request begins in another
	after     time.Duration // an idle slot is saved so long after its answer
	puts      chan struct{} // how many saved slots may wait to be stored

	mu      sync.Mutex
	pending []*saved
}

// saved is a slot on its way into the store.
type saved struct {
	file   *slotfile.File
	prompt kv.Prompt // what it was known to hold
	done   chan struct{}
}

// maxWaiting is how many saved slots may wait to be stored.
const maxWaiting = 2

// save has the server write a slot, and stores what is in it, in the background. The caller has the turn.
func (s *saver) save(ctx context.Context, sl *slots.Slot) {
	alone := s.table.Alone(sl)
	was := s.table.Saving(sl)
	if len(was.Prompt.Tokens) < trial.FewTokens || s.life.gone() {
		return
	}
	if s.watch && s.guard.replaced(ctx) {
		return
	}
	if err := s.guard.own(ctx, sl); err != nil {
		s.later(sl, err)
		return
	}
	_, soiling := s.files.Soiled()
	if soiling || !alone && (s.adapters || s.look.Taken(ctx, sl)) { // the same tokens under another adapter, or shifted, are other rows
		return
	}
	again := func() { // the client went whose request would have taken it: only this slot has it still
		if ctx.Err() != nil {
			s.table.NotSaved(sl, was.Prompt)
		}
	}
	select { // what waits to be stored takes memory
	case s.puts <- struct{}{}:
	case <-ctx.Done():
		again()
		return
	}
	f, _, err := s.reach.save(ctx, was.ID)
	if err == nil {
		if e := s.guard.own(ctx, sl); e != nil { // a change came between
			s.reach.folder.Done(f)
			<-s.puts
			s.later(sl, e)
			return
		}
	}
	if err != nil {
		<-s.puts
		again()
		s.log.Warn("saving a slot: it will be computed again", "slot", was.ID, "tokens", len(was.Prompt.Tokens), "err", err)
		return
	}
	if was.Left {
		s.holds(sl, f)
	}
	w := &saved{f, was.Prompt, make(chan struct{})}
	s.mu.Lock()
	s.pending = append(s.pending, w)
	s.mu.Unlock()
	s.work.Go(func() {
		s.store(w, sl, was, alone)
		s.reach.folder.Done(f)
		s.mu.Lock()
		s.pending = slices.DeleteFunc(s.pending, func(x *saved) bool { return x == w })
		s.mu.Unlock()
		close(w.done)
		<-s.puts
	})
}

// store stores a saved slot, and corrects the table by what its file says. was is the slot at the time of the save; alone says that only the front had used
// the server.
func (s *saver) store(w *saved, sl *slots.Slot, was slots.Slot, alone bool) {
	tokens, err := s.put(context.Background(), w)
	switch {
	case errors.Is(err, layout.ErrOtherTokens):
		if alone && !was.Left && was.Endpoint.Pins() { // else another request has been there
			s.unlike.differs(was.Kind, err)
		}
		s.table.SavedOther(sl, was.Prompt)
	case errors.Is(err, state.ErrBlob): // the server lays them out in another way than it did
		if err := s.model.SetNote(context.Background(), s.note, nil); err != nil {
			s.log.Warn("forgetting how slot files look", "err", err)
		}
		s.log.Warn("the slot files look otherwise than before: the server is looked at anew", "err", err)
		s.guard.renew()
	case errors.Is(err, db.ErrNoSpace): // it is said when that begins
	case err != nil:
		s.log.Warn("storing a slot", "slot", was.ID, "tokens", len(was.Prompt.Tokens), "err", err)
		s.shelf.wakes(err)
	default: // the slot is known to its end
		s.unlike.cases.Worked(was.Kind)
		s.table.SavedTo(sl, was.Prompt, tokens)
	}
}

// put stores a slot file, and returns the tokens that it held.
func (s *saver) put(ctx context.Context, w *saved) ([]int32, error) {
	held, parts, err := s.lay.Parts(w.file.Bytes(), w.prompt)
	if err != nil {
		return nil, err
	}
	d := s.model.Descriptor()
	for _, p := range parts {
		for i := range p.Rows { // of the All group, those of the prefix
			if d.Groups[d.Tensors[i].Group].Kind == kv.All {
				p.Rows[i] = p.Rows[i].Slice(d.Tensors[i], 0, len(p.Prompt.Tokens))
			}
		}
		_, err := s.model.Put(ctx, p.Prompt, p.Rows, db.PutOptions{})
		s.shelf.put(err)
		if err != nil {
			return nil, err
		}
	}
	return held, nil
}

// saveOthers saves what only idle slots have. The caller has the turn.
func (s *saver) saveOthers(ctx context.Context, keep *slots.Slot) {
	if !s.keepsIdle {
		var over []*slots.Slot
		for range 20 { // what is done is released soon, unless its client reads slowly
			if over = s.look.Ended(ctx, s.table.QuickBut(keep)); len(over) == 0 || ctx.Err() != nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		s.table.Slow(over)
	}
	for _, sl := range s.table.UnsavedBut(keep) {
		s.save(ctx, sl)
	}
}

// flush saves all that only slots have.
func (s *saver) flush(ctx context.Context) error {
	turn, err := s.table.Take(ctx)
	if err != nil {
		return err
	}
	defer turn.Give()
	s.saveOthers(ctx, nil)
	return nil
}

// saveNow saves what only idle slots have, and waits until it is stored.
func (s *saver) saveNow(ctx context.Context) error {
	if err := s.flush(ctx); err != nil {
		return err
	}
	s.allStored(ctx)
	return ctx.Err()
}

// idle saves a slot some time after its answer, if nobody has taken it meanwhile.
func (s *saver) idle(sl *slots.Slot) {
	ended := s.table.Of(sl).Ended
	time.AfterFunc(s.after, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if s.life.gone() {
			return
		}
		turn, err := s.table.Take(ctx)
		if err != nil {
			return
		}
		defer turn.Give()
		if s.table.StillIdle(sl, ended) {
			s.save(ctx, sl)
		}
	})
}

// later has a slot saved once the files have been read that are just being read.
func (s *saver) later(sl *slots.Slot, err error) {
	if !isHashing(err) {
		return
	}
	s.table.SaveLater(sl)
	s.idle(sl)
}

// storing reports whether something is on its way into the store.
func (s *saver) storing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending) > 0
}

// settled waits for saves under way that may hold more of a prompt than the slot does.
func (s *saver) settled(ctx context.Context, prompt kv.Prompt, held int) {
	s.stored(ctx, func(w *saved) bool { return slots.Common(w.prompt, prompt) > held+trial.FewTokens })
}

// allStored waits for all saves under way.
func (s *saver) allStored(ctx context.Context) { s.stored(ctx, func(*saved) bool { return true }) }

// stored waits for saves under way.
func (s *saver) stored(ctx context.Context, which func(*saved) bool) {
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
