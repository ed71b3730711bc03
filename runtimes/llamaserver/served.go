package llamaserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// served is a model that runs in the server, with its slots. What is done to slots, and every request that begins to work in one, goes
// through turn, one at a time: a server whose slots share a cache clears the idle ones when another begins.
type served struct {
	api    *api
	folder *slotFolder
	log    *slog.Logger
	front  *Front
	args   *Arguments // of the server; of a router, those of the server that it starts for the model
	watch  bool       // slots change without the front: others use the server, or it is started and ended by a router
	turn   chan struct{}
	born   time.Time
	costs  costs
	puts   chan struct{} // how many saved slots may wait to be stored
	wait   sync.WaitGroup

	mu        sync.Mutex
	slots     []*slot
	usable    int // slots from here on are gone
	queue     []*waiter
	foreign   int // requests at work in slots that the front did not choose
	passages  int // how often one began or ended
	context   int // tokens that a slot has room for
	id        *identity
	model     *db.Model
	lay       *layout
	name      string
	seen      seen   // of a server that somebody else runs
	note      string // where the store remembers how slot files look
	refused   error  // why nothing is cached; nil: all is well
	adapters  []loraAdapter
	notReused int               // restores in a row that the server did not reuse
	differ    map[endpoint]int  // slots in a row that held other tokens than the prompt, for no known reason
	otherwise map[endpoint]bool // endpoints whose prompts the server renders in another way
	pending   []*saved
	answers   atomic.Int64  // when the server was first seen to answer, in Unix nanoseconds; 0: it does not
	prepared  chan struct{} // closed when it is known what the server runs
	gone      atomic.Bool   // the server was restarted: this is about the one before
}

func newServed(f *Front, a *api) *served {
	return &served{
		api: a, front: f, folder: f.folder, log: f.log, args: f.args, watch: f.o.Attach != "" || f.args.Router,
		turn: make(chan struct{}, 1), born: time.Now(), prepared: make(chan struct{}), puts: make(chan struct{}, 2), differ: map[endpoint]int{}, otherwise: map[endpoint]bool{},
	}
}

// probePrompt is computed once, to see how the server lays out its slots.
const probePrompt = "The dormouse sleeps through the winter, and remembers in spring."

// prepare learns which model the server runs and how its slot files look.
func (s *served) prepare(ctx context.Context) error {
	p, err := s.api.props(ctx)
	if err != nil {
		return err
	}
	s.answers.CompareAndSwap(0, time.Now().UnixNano())
	s.front.answers.Store(true)
	s.mu.Lock()
	s.name, s.context, s.usable, s.seen = filepath.Base(p.ModelAlias), p.Defaults.Context, p.TotalSlots, seenOf(p)
	for i := len(s.slots); i < p.TotalSlots; i++ {
		s.slots = append(s.slots, &slot{id: i})
	}
	s.grant()
	s.mu.Unlock()
	if s.api.model != "" {
		command, err := s.api.startedWith(ctx)
		if err == nil {
			s.args, err = ParseArguments(command, s.front.args.env)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", passModel, err)
		}
	}
	switch {
	case s.args.Refused != "":
		return fmt.Errorf("%w: %s", passArgs, s.args.Refused)
	case p.TotalSlots == 0:
		return fmt.Errorf("%w: the server has none", passSlots)
	}
	var list []loraAdapter
	if len(s.args.Adapters) > 0 || s.front.o.Attach != "" { // it waits for a server that is at work
		if list, err = s.api.adapters(ctx); err != nil && !unsupported(err) {
			return err
		}
	}
	if s.front.o.Attach != "" && p.ModelPath != "" && !filepath.IsAbs(p.ModelPath) {
		return fmt.Errorf("%w: the server names its model %s, in a folder that is not known here: start it with the whole path", passModel, p.ModelPath)
	}
	id, err := identify(ctx, p, strings.TrimSpace(s.args.Rows+" "+s.front.o.Variant), list, s.front.o.Memo)
	if err != nil {
		return fmt.Errorf("%w: %w", passModel, err)
	}
	store, err := s.front.store()
	if err != nil {
		return fmt.Errorf("%w: %w", passStore, err)
	}
	// How slot files look is remembered by what the server was started with: then nothing needs to be computed to see it.
	note := formatNote(s.args, p)
	m, lay, err := recall(store, id, note)
	if err != nil {
		s.log.Warn("reading how slot files look", "err", err)
	}
	if m == nil {
		if m, lay, err = s.look(ctx, store, id, note); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.lay, s.model, s.adapters, s.name, s.note = id, lay, m, list, m.Descriptor().Name, note
	return nil
}

// look finds out how slot files look, and remembers it.
func (s *served) look(ctx context.Context, store *db.Store, id *identity, note string) (*db.Model, *layout, error) {
	if err := s.take(ctx); err != nil {
		return nil, nil, err
	}
	defer s.give()
	lay, desc, err := s.probe(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	registered, err := store.Register(ctx, desc)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", passStore, err)
	}
	value, err := json.Marshal(lay.format)
	if err == nil {
		err = registered.Model.SetNote(ctx, note, value)
	}
	if err != nil {
		s.log.Warn("remembering how slot files look", "err", err)
	}
	return registered.Model, lay, nil
}

// formatNote names the note in which a model remembers how a server's slot files look: everything that was said to the server goes into it.
func formatNote(a *Arguments, p props) string {
	h := kv.HashOf(fmt.Sprintf("%q %q %q %d %d", a.args, a.settings, p.Build, p.TotalSlots, p.Defaults.Context))
	return "llama-server slot files " + h.String()
}

// recall finds the model of a store that a server runs, if slot files of such a server were seen before.
func recall(store *db.Store, id *identity, note string) (*db.Model, *layout, error) {
	for st, err := range store.Models() {
		if err != nil {
			return nil, nil, err
		}
		if d := st.Descriptor; st.Err != nil || d.Weights != id.desc.Weights || d.Tokenizer != id.desc.Tokenizer || d.Architecture != id.desc.Architecture {
			continue
		}
		m, err := store.Model(st.Fingerprint)
		if err != nil {
			return nil, nil, err
		}
		value, err := m.Note(note)
		if err != nil {
			continue
		}
		var format state.FileFormat
		if err := json.Unmarshal(value, &format); err != nil {
			return nil, nil, err
		}
		desc, lay, err := id.describe(format)
		if err == nil {
			desc, err = desc.Normal()
		}
		if err != nil || desc.Fingerprint() != st.Fingerprint { // another build, or other arguments
			continue
		}
		return m, lay, nil
	}
	return nil, nil, nil
}

// probe computes a few tokens in a slot, saves it, and reads how it is laid out.
func (s *served) probe(ctx context.Context, id *identity) (*layout, kv.Descriptor, error) {
	tokens, err := s.api.tokenize(ctx, probePrompt, true)
	if err != nil {
		return nil, kv.Descriptor{}, err
	}
	sl, err := s.lease(ctx, kv.Prompt{Tokens: tokens})
	if err != nil {
		return nil, kv.Descriptor{}, err
	}
	defer s.release(sl)
	sl.forget()
	if err := s.api.compute(ctx, sl.id, tokens); err != nil {
		return nil, kv.Descriptor{}, err
	}
	f, err := s.folder.create(0)
	if err != nil {
		return nil, kv.Descriptor{}, fmt.Errorf("%w: %w", passSlots, err)
	}
	defer f.close()
	done, err := s.api.slot(ctx, "save", sl.id, f.name)
	switch {
	case err != nil:
		return nil, kv.Descriptor{}, fmt.Errorf("%w: %w", passSlots, err)
	case done.Saved == 0:
		return nil, kv.Descriptor{}, errors.New("a request has cleared the slot meanwhile")
	}
	if err := f.remap(); err != nil {
		return nil, kv.Descriptor{}, fmt.Errorf("%w: %w", passSlots, err)
	}
	format, err := learn(f.bytes())
	if err != nil {
		return nil, kv.Descriptor{}, fmt.Errorf("%w: %w", passSlots, err)
	}
	desc, lay, err := id.describe(format)
	if err != nil {
		return nil, desc, fmt.Errorf("%w: %w", passModel, err)
	}
	if err := s.api.erase(ctx, sl.id); err != nil && !unsupported(err) {
		s.log.Debug("erasing the slot of the probe", "err", err)
	}
	return lay, desc, nil
}

// How long a request waits for a server that was just started to be looked at. A model whose file is read for the first time takes longer: then
// requests pass.
const (
	waitAnswer   = 200 * time.Millisecond
	waitPrepared = time.Second
)

func (s *served) patience() time.Duration {
	at := s.answers.Load()
	if at == 0 {
		return waitAnswer
	}
	return time.Until(time.Unix(0, at).Add(waitPrepared))
}

// ready is the model's part of the store, or why there is none.
func (s *served) ready() (*db.Model, *layout, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.refused != nil:
		return nil, nil, s.refused
	case s.model == nil:
		return nil, nil, passHashing
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

// plan is what was decided for a request.
type plan struct {
	slot     *slot
	held     int // leading tokens that the slot had
	found    int // that the store has
	restored int
	reason   db.Reason
	lookup   time.Duration
	load     time.Duration
	bytes    int64
}

// begin saves the slots that would lose what only they have, and brings what is stored of the prompt into the leased slot, if
// that pays. The caller has the turn. What fails is logged: the server computes the prompt then.
func (s *served) begin(ctx context.Context, m *db.Model, lay *layout, sl *slot, prompt kv.Prompt) *plan {
	p := &plan{slot: sl, held: common(sl.prompt, prompt)}
	keep := sl
	if p.held < len(sl.prompt.Tokens) { // its end goes
		keep = nil
		if sl.unsaved {
			s.save(ctx, sl)
		}
		if !lay.rolls() {
			p.held = 0
		}
	}
	s.saveOthers(ctx, keep)
	s.settled(ctx, prompt, p.held)
	start := time.Now()
	match, err := m.Match(ctx, prompt, db.MatchOptions{Limit: len(prompt.Tokens) - 1})
	p.lookup = time.Since(start)
	if err != nil {
		s.log.Warn("looking up a prompt", "err", err)
		return p
	}
	defer match.Close()
	p.found, p.reason = match.Tokens(), match.Reason()
	if !s.costs.pays(p.found, p.found-p.held) || s.restoresUnused() {
		return p
	}
	start = time.Now()
	n, bytes, err := s.restore(ctx, match, lay, sl, prompt)
	p.load, p.bytes = time.Since(start), bytes
	if err != nil {
		s.log.Warn("restoring a prompt", "slot", sl.id, "tokens", p.found, "err", err)
		s.mu.Lock()
		sl.forget()
		s.mu.Unlock()
		p.held = 0
		return p
	}
	if p.restored = n; n > 0 {
		s.mu.Lock()
		sl.prompt, sl.unsaved = prompt.Prefix(n), false
		s.mu.Unlock()
		s.costs.restored(p.lookup+p.load, n)
	}
	return p
}

// saveOthers saves what only idle slots have.
func (s *served) saveOthers(ctx context.Context, keep *slot) {
	for _, sl := range s.unsavedSlots(keep) {
		s.save(ctx, sl)
	}
}

// maxNotReused is how many restores in a row may be for nothing.
const maxNotReused = 3

func (s *served) restoresUnused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notReused >= maxNotReused
}

// begun notes what the slots hold once a prompt has begun in one of them. It gives what that slot holds if the server refuses.
func (s *served) begun(sl *slot, prompt kv.Prompt, e endpoint) (before slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = *sl
	sl.prompt, sl.endpoint, sl.foreign = prompt, e, s.passages
	sl.unsaved = true
	if !s.args.KeepsIdle {
		for _, other := range s.slots {
			if other != sl && !other.busy {
				other.forget()
			}
		}
	}
	return before
}

// failed notes what a slot holds whose request the server has answered with an error: what it held before, if it was the request's fault.
func (s *served) failed(sl *slot, before slot, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status >= 400 && status < 500 {
		sl.prompt, sl.unsaved, sl.endpoint, sl.foreign = before.prompt, before.unsaved, before.endpoint, before.foreign
	} else {
		sl.forget()
	}
}

// launched waits until a request that was sent works in its slot, its answer has begun, or the client has gone: what is done to slots
// afterwards comes after it.
func (s *served) launched(ctx context.Context, sl *slot, answering <-chan struct{}) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-answering:
			return
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		list, err := s.api.slots(ctx)
		if err != nil {
			s.log.Debug("looking at the slots", "err", err)
			continue
		}
		for _, st := range list {
			if st.ID == sl.id && st.Processing {
				return
			}
		}
	}
}

// stopTime is how long a server may take to see that a client has gone.
const stopTime = 10 * time.Second

// stopped waits until the server works in a slot no more whose client has gone. What is done to a slot at work is put off by the server, for
// as long as it likes.
func (s *served) stopped(sl *slot) {
	ctx, cancel := context.WithTimeout(s.front.ctx, stopTime)
	defer cancel()
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		list, err := s.api.slots(ctx)
		if err != nil || s.gone.Load() {
			break
		}
		for _, st := range list {
			if st.ID == sl.id && !st.Processing {
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sl.forget()
}

// finished compares what the server reused with what it was given, and the prompt that it has computed with the one that the front knows.
func (s *served) finished(p *plan, prompt kv.Prompt, e endpoint, a answered) {
	if !a.known {
		return
	}
	if n := a.cached + a.prompt; n != len(prompt.Tokens) {
		s.rendersOtherwise(e, fmt.Errorf("%w: it has %d, expected %d", errOtherTokens, n, len(prompt.Tokens)))
		s.mu.Lock()
		p.slot.forget()
		s.mu.Unlock()
		return
	}
	s.costs.computed(a.prefill, a.prompt)
	if p.restored == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if expected := p.restored - s.lay.again(p.restored); a.cached >= expected {
		s.notReused = 0
		return
	}
	s.notReused++
	s.log.Warn("restored but not reused", "model", s.name, "slot", p.slot.id, "restored", p.restored, "reused", a.cached, "in a row", s.notReused)
	if s.notReused == maxNotReused {
		s.log.Warn("the server does not reuse what is restored: no more is restored for this model until the server is started again", "model", s.name)
	}
}

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
	time.AfterFunc(s.front.o.SaveAfter, func() {
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
func reasonOf(err error) passed {
	var p passed
	if errors.As(err, &p) {
		return p
	}
	return passServer
}

// named is the model's name, which changes once it is known what the server runs.
func (s *served) named() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name
}
