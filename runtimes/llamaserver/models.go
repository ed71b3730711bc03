package llamaserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/runtimes/internal/modelfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// apiOf speaks to the server of a model.
func (f *Front) apiOf(model string) *api.Client {
	key := f.args.APIKey
	if f.o.APIKey != "" {
		key = f.o.APIKey
	}
	return &api.Client{Base: f.base.JoinPath(f.args.Prefix), Key: key, Model: model, Client: f.client}
}

// filesOf is what is known of the files of a model. The caller holds mu.
func (f *Front) filesOf(model string) *weights.Files {
	l := f.files[model]
	if l == nil {
		l = f.newFiles(model)
		f.files[model] = l
	}
	return l
}

func (f *Front) newFiles(model string) *weights.Files {
	return weights.New(weights.Server{API: f.apiOf(model), Base: f.base, Attached: f.attached(), Memo: f.o.Memo, Log: f.log, Work: &f.work, Ctx: f.ctx})
}

// willLoad is what a server that was just started will load. Files that are not there yet, it fetches itself.
func (f *Front) willLoad() map[string]*weights.Files {
	l := f.newFiles("")
	if paths, err := gguf.Splits(f.args.Model); err == nil && f.args.Model != "" && !f.args.Router {
		l.Of(slices.DeleteFunc(append(paths, f.args.Adapters...), func(p string) bool { return modelfile.StampOf(p).File == "" }))
	}
	return map[string]*weights.Files{"": l}
}

// soils is [weights.Files.Soils] of all models.
func (f *Front) soils() (ended func()) {
	f.mu.Lock()
	list := slices.Collect(maps.Values(f.files))
	f.mu.Unlock()
	var all []func()
	for _, l := range list { // it may be waiting for the server
		all = append(all, l.Soils())
	}
	return func() {
		for _, end := range all {
			end()
		}
	}
}

// servedFor is the state of a model; it is prepared when it is asked for first.
func (f *Front) servedFor(model string) *served {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current()
	if s := f.served[model]; s != nil {
		return s
	}
	s := newServed(&f.shared, f.era, f.apiOf(model), f.filesOf(model))
	f.served[model] = s
	if f.closed {
		s.refused = request.PassServer
		close(s.hold.prepared)
		return s
	}
	f.work.Go(func() {
		defer close(s.hold.prepared)
		f.prepare(s)
	})
	return s
}

// How long the front waits at most between two looks at a server that is being started, and at something of somebody's that is none.
const (
	loadPause     = 100 * time.Millisecond
	strangerPause = 2 * time.Second
)

// prepare has a model prepared, as often as it takes until it is known what the server runs.
func (f *Front) prepare(s *served) {
	model, opened := s.api.Model, false
	for pause, most := 10*time.Millisecond, loadPause; ; pause = min(2*pause, most) {
		err := s.prepare(f.ctx)
		var p request.Pass
		switch {
		case f.ctx.Err() != nil || s.gone():
			return
		case err == nil:
			f.refusals.WorkedAll(func(of refusedModel) bool { return of.model == model })
			f.log.Info("prompts of this model are kept", "model", s.named(), "slots", len(s.table.Slots()), "fingerprint", s.kept.model.Fingerprint())
			return
		case errors.As(err, &p):
			s.refuse(err)
			if _, e := f.shelf.store(); p == request.PassStore && e == nil && !opened { // it was opened meanwhile, and again may have come before the refusal
				opened = true
				s.refuse(nil)
				continue
			}
			f.shelf.wakes(err)
			f.refusals.Rest(refusedModel{model, p})
			f.log.Warn("nothing is kept of this model", "reason", p, "err", err)
			return
		case api.Refuses(err) && !s.stranger(err):
			s.refuse(fmt.Errorf("%w: %w", request.PassModel, err))
			f.refusals.Rest(refusedModel{model, request.PassModel})
			f.log.Warn("the server refuses to be looked at", "model", model, "err", err)
			if model != "" { // a router has no such model, at least now
				f.drop(s)
			}
			return
		}
		f.log.Debug("looking at the server", "model", model, "err", err)
		s.strange(err)
		if most = loadPause; s.stranger(err) {
			most = strangerPause
		}
		s.hold.pause(f.ctx, pause) // it is being started
	}
}

// stranger reports whether something answers at the address of a server that somebody else starts, and is none: one may come in its place at any time.
func (s *served) stranger(err error) bool {
	var status *api.StatusError
	return s.shared.attached() && !s.hold.answered() && errors.As(err, &status) && status.Status == http.StatusNotFound
}

// strange has requests pass, if what a server says before it has loaded a model is neither an answer nor that it will be one: another status, or 200 with
// something else than a llama-server says.
func (s *served) strange(err error) {
	if !s.hold.answered() && !api.Loading(err) && !api.BrokeOff(err) {
		s.hold.release(request.PassServer)
	}
}

// models are the models that the server runs.
func (f *Front) models() []*served {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current()
	return slices.Collect(maps.Values(f.served))
}

// onlyModel is the name of the model that the server runs, if there is one alone.
func (f *Front) onlyModel() string {
	if all := f.models(); len(all) == 1 {
		return all[0].named()
	}
	return ""
}

// drop forgets a model.
func (f *Front) drop(s *served) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current()
	if f.served[s.api.Model] == s {
		delete(f.served, s.api.Model)
	}
}

// reset has all models looked at anew.
func (f *Front) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.era.end()
	f.current()
}

// current begins a new era if somebody has ended the last one: the server is another one. The caller holds mu.
func (f *Front) current() {
	if !f.era.over.Load() {
		return
	}
	f.era = &era{}
	for _, s := range f.served {
		s.lost()
	}
	f.served = map[string]*served{}
}

// again has models prepared anew that could not be before.
func (f *Front) again() {
	f.mu.Lock()
	f.current()
	for key, s := range f.served {
		if _, err := s.ready(); errors.Is(err, request.PassStore) {
			s.lost()
			delete(f.served, key)
		}
	}
	f.mu.Unlock()
	f.Prepare()
}

// lostServer is called when the server does not answer. What waits for its first answer goes on waiting: it may be starting.
func (f *Front) lostServer() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current()
	for key, s := range f.served {
		if !s.hold.isPrepared() && !s.hold.answered() {
			continue
		}
		s.lost()
		delete(f.served, key)
		if f.attached() && !s.files.Doubtful() { // another process may come in its place. That it has come, a doubt needs to see
			s.files.Restarted()
		}
	}
}

// lookAgain has a refused model prepared anew, in the background, if it is time for that. What the server was started with stays as it is, and the
// store comes by itself.
func (f *Front) lookAgain(s *served, why request.Pass) {
	if _, err := f.shelf.store(); why == request.PassArgs || why == request.PassHashing || why == request.PassStore && err != nil {
		return
	}
	f.mu.Lock()
	f.current()
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

// glance notes what became of the files before a request goes on that may wake the server.
func (f *Front) glance(ctx context.Context) {
	for _, s := range f.models() {
		if _, err := s.ready(); (err == nil || errors.Is(err, request.PassFiles)) && (s.args.Sleep > 0 || s.watch) && errors.Is(s.files.Sound(ctx), weights.ErrAnew) && !s.gone() {
			f.reset()
		}
	}
}

// forgetSlots says that nothing is known of any slot.
func (f *Front) forgetSlots() {
	for _, s := range f.models() {
		s.table.ForgetAll()
	}
}

// stillTime is how long the end of what is done to slots is waited for.
const stillTime = 10 * time.Second

// still waits until nothing is done to slots and nothing is on its way from them into the store, and keeps it so until resume.
func (f *Front) still(ctx context.Context) (resume func()) {
	f.stilled.Lock()
	ctx, cancel := context.WithTimeout(ctx, stillTime)
	defer cancel()
	var taken []*slots.Turn
	for _, s := range f.models() {
		turn, err := s.table.Take(ctx)
		if err != nil {
			continue
		}
		taken = append(taken, turn)
		if k, err := s.ready(); err == nil {
			k.saver.allStored(ctx)
		}
	}
	return func() {
		for _, turn := range taken {
			turn.Give()
		}
		f.stilled.Unlock()
	}
}
