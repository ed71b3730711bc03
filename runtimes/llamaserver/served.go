package llamaserver

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slotfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// shared is what all models of a front have in common.
type shared struct {
	o         Options
	args      *Arguments
	log       *slog.Logger
	base      *url.URL
	client    *http.Client
	proxy     *httputil.ReverseProxy
	folder    *slotfile.Folder
	shelf     *shelf
	ledger    ledger
	opener    layout.Opener             // of the model's file
	refusals  trial.Cases[refusedModel] // models of which nothing is kept
	explained explanations              // where prompts parted, with their texts
	answers   atomic.Bool               // the server has answered once
	work      sync.WaitGroup
	ctx       context.Context // ends with Close
}

// refusedModel is a model of which nothing is kept, and why.
type refusedModel struct {
	model string
	why   request.Pass
}

// attached reports whether somebody else runs the server.
func (f *shared) attached() bool { return f.o.Attach != "" }

// keyed reports whether several people may use the server, each with an API key.
func (f *shared) keyed() bool { return f.args.APIKey != "" || f.o.APIKey != "" || f.o.ScopeByKey }

// served is a model that runs in the server, from the first look at it until it is looked at anew.
type served struct {
	*life
	shared    *shared
	api       *api.Client
	args      *Arguments // of the server; of a router, those of the server that it starts for the model
	watch     bool       // the server changes without the front: others use it, or a router starts and ends it
	files     *weights.Files
	table     *slots.Table
	look      *slots.Look
	guard     *guard
	reach     *reach
	admission admission
	hold      *hold          // what requests wait for until the model is prepared
	wait      sync.WaitGroup // for what is being stored

	mu      sync.Mutex
	name    string
	kept    *kept
	refused error // why nothing is kept; nil: all is well
	doubt   error // why nothing is just now: it is looked at again with each request
}

// kept is what is known of a model whose prompts are kept, and what is done with them.
type kept struct {
	model    *db.Model
	lay      *layout.Layout
	room     int // tokens that a slot has room for
	prompts  *prompts
	unlike   *unlike
	apart    *apart
	saver    *saver
	restorer *restorer
	partings *partings
	counter  *counter

	overtaken trial.Cases[string] // kinds of requests of which more was stored than the slot had to which they were sent ahead
}

func newServed(f *shared, e *era, a *api.Client, files *weights.Files) *served {
	s := &served{
		life: &life{era: e}, shared: f, api: a, args: f.args, watch: f.attached() || f.args.Router, files: files,
		hold: newHold(), admission: admission{api: a},
	}
	s.table = slots.New(slots.Server{ByKey: f.o.ScopeByKey, Watched: s.watch})
	s.look = &slots.Look{Table: s.table, API: a, Log: f.log, Ctx: f.ctx}
	s.guard = &guard{api: a, files: files, table: s.table, life: s.life, log: f.log, base: f.base, attached: f.attached(), watch: s.watch}
	s.reach = &reach{api: a, folder: f.folder, base: f.base, log: f.log}
	return s
}

// keep makes the rooms of a model whose prompts are kept.
func (s *served) keep(store *db.Store, m *db.Model, lay *layout.Layout, id *layout.Identity, list []api.Adapter, room int, note string) *kept {
	f, name := s.shared, m.Descriptor().Name
	s.look.KeepsIdle = s.args.KeepsIdle
	s.guard.has(list, s.args.Sleep > 0)
	k := &kept{model: m, lay: lay, room: room, unlike: &unlike{log: f.log}}
	k.prompts = &prompts{api: s.api, log: f.log, byKey: f.o.ScopeByKey, room: room, adapters: list, hashes: id.Adapters, unlike: k.unlike}
	after := f.o.SaveAfter
	if s.args.Sleep > 0 { // the server empties its slots when it sleeps
		after = min(after, s.args.Sleep/2)
	}
	k.saver = &saver{
		model: m, lay: lay, note: note, table: s.table, look: s.look, files: s.files, guard: s.guard, life: s.life, reach: s.reach, shelf: f.shelf,
		unlike: k.unlike, log: f.log, work: &s.wait, watch: s.watch, adapters: len(list) > 0, keepsIdle: s.args.KeepsIdle, after: after,
		puts: make(chan struct{}, maxWaiting),
	}
	k.apart = &apart{byKey: f.o.ScopeByKey, api: s.api, table: s.table, saver: k.saver, log: f.log}
	k.restorer = &restorer{
		model: m, name: name, note: note, lay: lay, api: s.api, folder: f.folder, table: s.table, look: s.look, files: s.files, guard: s.guard,
		saver: k.saver, shelf: f.shelf, unlike: k.unlike, log: f.log, work: &s.wait, watch: s.watch, adapters: len(list) > 0,
	}
	k.partings = &partings{model: m, api: s.api, shelf: f.shelf, log: f.log, ctx: f.ctx, keyed: f.keyed()}
	if f.o.Explain {
		k.partings.explained = &f.explained
	}
	k.counter = &counter{model: m, store: store, ledger: &f.ledger, work: &s.wait}
	return k
}

// ready returns what is done with the model's prompts, or why they are not kept.
func (s *served) ready() (*kept, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.refused != nil:
		return nil, s.refused
	case s.kept == nil:
		return nil, s.hold.reason()
	}
	return s.kept, nil
}

func (s *served) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = err
}

// doubts notes why nothing is kept just now; nil: it is.
func (s *served) doubts(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubt = err
}

// lost says that the server is another one now: what its slots held is gone.
func (s *served) lost() {
	s.end()
	s.table.ForgetAll()
}

// named is the model's name, which changes once it is known what the server runs.
func (s *served) named() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name
}

// calls notes the model's name.
func (s *served) calls(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name = name
}

// status says how the model is.
func (s *served) status() ModelStatus {
	s.mu.Lock()
	m, k := ModelStatus{Name: s.name}, s.kept
	err := cmp.Or(s.refused, s.doubt)
	s.mu.Unlock()
	if err != nil {
		m.Refused = err.Error()
	}
	for _, sl := range s.table.Slots() {
		m.Slots = append(m.Slots, SlotStatus{sl.ID, sl.Busy, len(sl.Prompt.Tokens), sl.Unsaved})
	}
	m.Storing = s.table.InTurn() // behind the slots: one that is being saved counts as saved, and is in turn until it is on its way
	if k != nil {
		m.Fingerprint = k.model.Fingerprint().String()
		m.Storing = m.Storing || k.saver.storing()
		m.Resting = k.resting()
	}
	return m
}

// resting is what is left alone for a while.
func (k *kept) resting() (out []Resting) {
	itself := func(kind string) string { return kind }
	for _, r := range slices.Concat(
		k.restorer.notReused.List(figures.NotReused, itself), k.unlike.cases.List(string(request.PassDiffers), itself), k.restorer.costs.Resting(),
	) {
		out = append(out, Resting{r.Name, r.Reason, r.Requests, r.Within})
	}
	return out
}

// Resting is something that did not work and that the front leaves alone for a while.
type Resting struct {
	Case     string        // what kind of requests: "chat with tools", "restores of 1024 tokens and more"
	Reason   string        // why, as in X-Dormouse
	Requests int           // after so many of them it is tried again
	Within   time.Duration // or after so long
}

// ModelStatus is a model that the server runs.
type ModelStatus struct {
	Name        string
	Fingerprint string // as the store knows it; empty: nothing is kept
	Refused     string // why nothing is kept
	Storing     bool   // what a slot had is on its way into the store, or a request on its way into a slot
	Slots       []SlotStatus
	Resting     []Resting `json:",omitempty"` // what is left alone for a while
}

// SlotStatus is a slot as the front knows it.
type SlotStatus struct {
	ID      int
	Busy    bool
	Tokens  int // that it holds at least
	Unsaved bool
}
