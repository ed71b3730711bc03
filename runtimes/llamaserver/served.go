package llamaserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slotfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// served is a model that runs in the server, with its slots. What is done to slots, and every request that begins to work in one, goes
// through turn, one at a time: a server whose slots share a cache clears the idle ones when another begins.
type served struct {
	api    *api.Client
	loaded *weights.Files
	folder *slotfile.Folder
	log    *slog.Logger
	front  *Front
	args   *Arguments // of the server; of a router, those of the server that it starts for the model
	watch  bool       // slots change without the front: others use the server, or it is started and ended by a router
	turn   chan struct{}
	born   time.Time
	costs  trial.Costs
	puts   chan struct{} // how many saved slots may wait to be stored
	wait   sync.WaitGroup

	mu        sync.Mutex
	slots     []*slot
	usable    int // slots from here on are gone
	queue     []*waiter
	foreign   int            // requests at work in slots that the front did not choose
	passages  int            // how often one began or ended
	passing   map[string]int // and of whom they are, by scope, where requests are kept apart by their keys
	context   int            // tokens that a slot has room for
	id        *layout.Identity
	model     *db.Model
	lay       *layout.Layout
	name      string
	seen      seen   // of a server that somebody else runs
	note      string // where the store remembers how slot files look
	refused   error  // why nothing is cached; nil: all is well
	doubt     error  // why nothing is just now: it is looked at again with each request
	adapters  []api.Adapter
	notReused trial.Cases[string] // kinds of requests for which the server did not reuse what was restored
	differ    trial.Cases[string] // kinds of requests whose prompts the server renders in another way
	counted   map[string]bool     // kinds of requests of which the server has counted as many tokens as the front
	overtaken trial.Cases[string] // kinds of requests of which more was stored than the slot had to which they were sent ahead
	pending   []*saved
	admitted  map[[sha256.Size]byte]bool // hashes of API keys that the server takes
	answers   atomic.Int64               // when the server was first seen to answer, in Unix nanoseconds; 0: it does not
	prepared  chan struct{}              // closed when it is known what the server runs
	hold      *hold                      // what requests wait for until then
	gone      atomic.Bool                // the server was restarted: this is about the one before
	reached   atomic.Bool                // the server has written a slot file: it reaches the folder
}

func newServed(f *Front, a *api.Client) *served {
	return &served{
		api: a, front: f, loaded: f.loadedBy(a.Model), folder: f.folder, log: f.log, args: f.args, watch: f.o.Attach != "" || f.args.Router,
		turn: make(chan struct{}, 1), born: time.Now(), prepared: make(chan struct{}), hold: newHold(), puts: make(chan struct{}, 2), passing: map[string]int{},
		admitted: map[[sha256.Size]byte]bool{}, counted: map[string]bool{},
	}
}

// ready is the model's part of the store, or why there is none.
func (s *served) ready() (*db.Model, *layout.Layout, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.refused != nil:
		return nil, nil, s.refused
	case s.model == nil:
		return nil, nil, s.hold.reason()
	}
	return s.model, s.lay, nil
}

func (s *served) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = err
}

// take waits for the turn to do something to slots.
func (s *served) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *served) give() { <-s.turn }

// flush saves all that only slots have.
func (s *served) flush(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.give()
	s.saveOthers(ctx, nil)
	return nil
}

// unbusy waits until no slot is at work.
func (s *served) unbusy(ctx context.Context) {
	for {
		busy := false
		s.mu.Lock()
		for _, sl := range s.slots {
			busy = busy || sl.busy
		}
		s.mu.Unlock()
		if !busy {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// idle saves a slot some time after its answer, if nobody has taken it meanwhile.
func (s *served) idle(sl *slot) {
	s.mu.Lock()
	ended := sl.ended
	s.mu.Unlock()
	after := s.front.o.SaveAfter
	if s.args.Sleep > 0 { // the server empties its slots when it sleeps
		after = min(after, s.args.Sleep/2)
	}
	time.AfterFunc(after, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if s.gone.Load() || s.take(ctx) != nil {
			return
		}
		defer s.give()
		s.mu.Lock()
		still := !sl.busy && sl.unsaved && sl.ended.Equal(ended)
		s.mu.Unlock()
		if still {
			s.save(ctx, sl)
		}
	})
}

// lost says that the server is another one now: what its slots held is gone.
func (s *served) lost() {
	s.gone.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.slots {
		sl.forget()
	}
}

// reasonOf is the word for why a request was not helped.
func reasonOf(err error) request.Pass {
	var p request.Pass
	if errors.As(err, &p) {
		return p
	}
	return request.PassServer
}

// typesOf are the types of a request's parts for which it passes, if it is because of such.
func typesOf(err error) string {
	var b request.Because
	errors.As(err, &b)
	return b.Types.String()
}

// named is the model's name, which changes once it is known what the server runs.
func (s *served) named() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name
}
