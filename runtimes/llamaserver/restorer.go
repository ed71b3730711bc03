package llamaserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/answer"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slotfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// restorer brings what is stored of prompts into slots, and learns whether that pays.
type restorer struct {
	model  *db.Model
	name   string
	note   string // where the model remembers how slot files look
	lay    *layout.Layout
	api    *api.Client
	folder *slotfile.Folder
	table  *slots.Table
	look   *slots.Look
	files  *weights.Files
	guard  *guard
	saver  *saver
	shelf  *shelf
	unlike *unlike
	log    *slog.Logger
	work   *sync.WaitGroup

	watch    bool // the server changes without the front
	adapters bool // the server has some

	costs     trial.Costs
	notReused trial.Cases[string] // kinds of requests for which the server did not reuse what was restored
}

// begin saves the slots that would lose what only they have, and brings what is stored of the prompt into the leased slot, if
// that pays. The caller has the turn. What fails is logged: the server computes the prompt then.
func (s *restorer) begin(ctx context.Context, sl *slots.Slot, prompt kv.Prompt, req *request.Request) *plan {
	s.guard.own(ctx, sl)
	if len(sl.Prompt.Tokens) > 0 && !s.watch { // else that was looked at just now
		if s.look.Believe(ctx, sl) {
			s.guard.woke(ctx)
		}
	}
	p := &plan{slot: sl, kind: req.Kind(), held: slots.Common(sl.Prompt, prompt), near: s.table.Nearest(prompt, theirTokens)}
	keep := sl
	if p.held < len(sl.Prompt.Tokens) { // its end goes
		p.parts, keep = p.held < len(prompt.Tokens), nil
		if sl.Unsaved {
			s.saver.save(ctx, sl)
		}
		if !s.lay.Rolls() {
			p.held = 0
		}
	}
	s.saver.saveOthers(ctx, keep)
	s.saver.settled(ctx, prompt, p.held)
	match, err := s.lookUp(ctx, prompt, p)
	if err != nil {
		p.why = figures.LookupFailed
		s.log.Warn("looking up a prompt", "err", err)
		return p
	}
	defer match.Close()
	if p.found <= p.held { // the store's reason says why, or the slot has more
		return p
	}
	if p.why = s.notWorth(p, prompt, req); p.why != "" {
		return p
	}
	if s.look.Taken(ctx, sl) { // a restore would wait for it, and all others for the restore
		p.held, p.why = 0, figures.SlotTaken
		return p
	}
	soiled, _ := s.files.Soiled()
	start := time.Now()
	var n int
	var bytes int64
	err = s.adapt(ctx, sl, prompt, req)
	if err == nil {
		n, bytes, err = s.restore(ctx, match, sl, prompt)
	}
	p.load, p.bytes = time.Since(start), bytes
	if err != nil {
		s.log.Warn("restoring a prompt", "slot", sl.ID, "tokens", p.found, "err", err)
		s.table.Forget(sl)
		p.held, p.why = 0, figures.RestoreFailed
		return p
	}
	if p.restored = n; n > 0 {
		s.table.Restored(sl, prompt.Prefix(n), soiled)
		s.costs.Restored(p.lookup+p.load, n, n-p.held)
	}
	return p
}

// lookUp looks a prompt up, and notes in its plan what the store has.
func (s *restorer) lookUp(ctx context.Context, prompt kv.Prompt, p *plan) (*db.Match, error) {
	start := time.Now()
	match, err := s.model.Match(ctx, prompt, db.MatchOptions{Limit: len(prompt.Tokens) - 1})
	p.lookup = time.Since(start)
	if err != nil {
		s.shelf.wakes(err)
		return nil, err
	}
	p.found, p.reason = match.Tokens(), match.Reason()
	return match, nil
}

// leastChosen is how much of a prompt a slot must have, as a divisor, that llama-server chooses it for what it has (--slot-prompt-similarity, a tenth if it is
// not said). With less it takes the slot that was not used for longest, and what was restored elsewhere is of no use.
const leastChosen = 10

// notWorth is why what was found is not restored: a code, or none.
func (s *restorer) notWorth(p *plan, prompt kv.Prompt, req *request.Request) string {
	lacking := p.found - p.held
	switch {
	case lacking < trial.FewTokens:
		return figures.TooFew
	case s.notReused.Resting(p.kind):
		return figures.NotReused
	case !s.costs.Pays(p.found, lacking):
		return figures.TooSlow
	case !req.Endpoint.Pins() && p.found*leastChosen <= len(prompt.Tokens):
		return figures.NotChosen
	}
	return ""
}

// adapt has a token computed in a slot with the adapters of a request, if the last one in the slot had others, or nobody knows: the server throws
// away what a slot holds when its adapters change, and would throw away what is to be restored.
func (s *restorer) adapt(ctx context.Context, sl *slots.Slot, prompt kv.Prompt, req *request.Request) error {
	if !s.adapters || s.table.Adapted(sl, prompt.Adapters) {
		return nil
	}
	var lora json.RawMessage
	if req.Has("lora") && req.Endpoint.Pins() {
		lora = req.Fields["lora"]
	}
	if err := s.api.Adapt(ctx, sl.ID, prompt.Tokens[0], lora); err != nil {
		return fmt.Errorf("having a slot take the adapters of a request: %w", err)
	}
	s.table.Adapt(sl, prompt.Adapters)
	s.look.ForgetEmptied(ctx, sl, nil)
	return nil
}

// withoutOthersRows empties a slot of which nothing is known where the server may go on with rows that are not those of the prompt: of a server with adapters,
// with rows that were computed with others; else if it is soiled. It gives false where that cannot be done: somebody is at work in the slot.
func (s *restorer) withoutOthersRows(ctx context.Context, sl *slots.Slot) bool {
	soiled, _ := s.files.Soiled()
	if !s.adapters && s.table.Of(sl).Pure == soiled {
		return true
	}
	if s.look.Taken(ctx, sl) {
		return false
	}
	if err := s.api.Erase(ctx, sl.ID); err != nil && !api.Unsupported(err) {
		s.log.Warn("emptying a slot that may hold rows of other adapters, or shifted ones", "slot", sl.ID, "err", err)
		return false
	}
	s.table.Purified(sl, soiled)
	return true
}

// finished compares what the server reused with what it was given, and the prompt that it has computed with the one that the front knows.
func (s *restorer) finished(p *plan, prompt kv.Prompt, a answer.Answer) {
	if !a.Known {
		return
	}
	if n := a.Cached + a.Prompt; n != len(prompt.Tokens) {
		s.unlike.differs(p.kind, fmt.Errorf("%w: it has %d, expected %d", layout.ErrOtherTokens, n, len(prompt.Tokens)))
		s.table.Forget(p.slot)
		return
	}
	s.costs.Computed(a.Prefill, a.Prompt)
	if p.restored == 0 {
		return
	}
	if expected := p.restored - s.lay.Again(p.restored); a.Cached < expected {
		s.unused(p, a)
		return
	}
	s.notReused.Worked(p.kind)
}

// unused counts a restore that the server did not reuse.
func (s *restorer) unused(p *plan, a answer.Answer) {
	rests := s.notReused.Failed(p.kind)
	s.table.Unadapted(p.slot)
	s.log.Warn("restored but not reused", "model", s.name, "kind", p.kind, "slot", p.slot.ID, "restored", p.restored, "reused", a.Cached)
	// Whether the server wants checkpoints is found out by trying: both ways, if neither works.
	if strict := s.lay.Strict.Load(); a.Cached == 0 && s.lay.Window > 0 && (!strict || rests) && s.lay.Strict.CompareAndSwap(strict, !strict) {
		s.log.Info("the server did not reuse what was restored: the next time it is done in the other way", "model", s.name, "with a checkpoint", !strict)
		note, value := layout.StrictNote(s.note), []byte{1}
		if strict {
			value = nil
		}
		s.work.Go(func() {
			if err := s.model.SetNote(context.Background(), note, value); err != nil {
				s.log.Warn("remembering whether the server wants checkpoints", "err", err)
			}
		})
	}
	if rests {
		s.log.Warn("the server does not reuse what is restored: nothing is restored for such requests for a while", "model", s.name, "kind", p.kind)
	}
}

// disproved has the front believe nothing more of idle slots when the server computed again what one was believed to hold.
func (s *restorer) disproved(p *plan, a answer.Answer) {
	if !a.Known || p.restored > 0 || p.held < trial.FewTokens || a.Cached+1 >= p.held {
		return
	}
	s.log.Info("a slot did not hold what it was believed to", "slot", p.slot.ID, "believed", p.held, "reused", a.Cached)
	s.table.ForgetSaved()
}
