package llamaserver

import (
	"errors"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// refusedModel is a model of which nothing is kept, and why.
type refusedModel struct {
	model string
	why   request.Pass
}

// refusedFor notes that nothing is kept of a model: it is looked at again after some requests, or some time. A file that could not be read may be there
// again, and a slot that could not be saved.
func (f *Front) refusedFor(model string, why request.Pass) {
	f.refusals.Rest(refusedModel{model, why})
}

// looks is how often a model was refused in a row.
func (f *Front) looks(model string, why request.Pass) int {
	return f.refusals.Times(refusedModel{model, why})
}

// keptOf forgets that a model was refused.
func (f *Front) keptOf(model string) {
	f.refusals.WorkedAll(func(of refusedModel) bool { return of.model == model })
}

// lookAgain has a refused model prepared anew, in the background, if it is time for that. What the server was started with stays as it is, and the
// store comes by itself.
func (f *Front) lookAgain(s *served, why request.Pass) {
	if _, err := f.store(); why == request.PassArgs || why == request.PassHashing || why == request.PassStore && err != nil {
		return
	}
	f.mu.Lock()
	model, of := s.api.Model, refusedModel{s.api.Model, why}
	again := f.served[model] == s && f.refusals.Times(of) > 0 && !f.refusals.Resting(of)
	if again {
		s.lost()
		delete(f.served, model)
	}
	f.mu.Unlock()
	if again {
		f.log.Info("a model of which nothing is kept is looked at again", "model", s.named(), "reason", why)
		f.servedFor(model)
	}
}

// wakes has a store go on that has suspended itself, since its index was damaged and could not be made anew just then. It tries until it does.
func (f *Front) wakes(err error) {
	store, none := f.store()
	if none != nil || !errors.Is(err, db.ErrSuspended) || f.ctx.Err() != nil || !f.waking.CompareAndSwap(false, true) {
		return
	}
	f.work.Add(1)
	go func() {
		defer f.work.Done()
		defer f.waking.Store(false)
		for pause := time.Second; ; pause = min(2*pause, time.Minute) {
			err := store.Resume(f.ctx)
			if err == nil {
				f.log.Info("the store goes on", "dir", f.o.Dir)
				f.again()
				return
			}
			f.log.Warn("the store is suspended", "dir", f.o.Dir, "err", err)
			select {
			case <-f.ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}()
}
