package llamaserver

import (
	"fmt"
	"net/http"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// outcome says what became of a plan, and why no more.
func (p *plan) outcome(x *exchange, a answered) (figures.Outcome, string) {
	n, known := p.reused(a)
	switch {
	case !known && (!x.whole || x.status >= http.StatusBadRequest):
		return figures.Miss, figures.NotAnswered
	case n == 0:
		return figures.Miss, p.code(a)
	case p.restored == 0:
		return figures.Slot, p.code(a)
	}
	return figures.Hit, p.code(a)
}

// reused is how many tokens did not need to be computed: as the server says, or, where it did not, as it is expected to of what was restored, or
// believed to be in the slot.
func (p *plan) reused(a answered) (n int, known bool) {
	if n = max(p.restored, p.held); a.known {
		n = a.cached
	}
	if n < trial.FewTokens {
		n = 0
	}
	return n, a.known
}

// header is what the answer says of the plan that it was computed by. What is sent before the server has said what it reused is what it is expected to.
func (p *plan) header(a answered) string {
	n, known := p.reused(a)
	tokens := "tokens"
	if !known {
		tokens = "expected"
	}
	parted := ""
	if x := p.partedEarly(a); x != nil {
		parted = x.header(known)
	}
	switch {
	case n == 0:
		return "miss; reason=" + p.code(a) + parted
	case p.restored > 0:
		return fmt.Sprintf("hit; %s=%d; ms=%d", tokens, n, (p.lookup+p.load).Milliseconds()) + parted
	}
	return fmt.Sprintf("slot; %s=%d", tokens, n) + parted
}

// code is why no more was found.
func (p *plan) code(a answered) string {
	n, _ := p.reused(a)
	switch {
	case n == 0 && max(p.restored, p.held) >= trial.FewTokens:
		return figures.NotReused
	case n > 0 && p.restored == 0 && p.parts && p.why == "": // the slot had been another conversation's
		return figures.Code(kv.Diverged)
	case n > 0 && p.restored == 0 && (p.why == "" || p.why == figures.TooFew):
		return figures.ServerCache
	}
	if p.restored == 0 && p.why != "" {
		return p.why
	}
	return figures.Code(p.reason.Code)
}

func (p *plan) observation(prompt kv.Prompt, a answered) db.Observation {
	return db.Observation{
		Asked: len(prompt.Tokens), Found: p.found, Loaded: p.restored, Reused: a.cached, Prefilled: a.prompt, Decoded: a.decoded, Unused: p.unused(a),
		Lookup: p.lookup, Load: p.load, Prefill: a.prefill, Decode: a.decode, Reason: p.reason,
	}
}

// unused are tokens that were restored and computed again.
func (p *plan) unused(a answered) int {
	if !a.known {
		return 0
	}
	return max(0, p.restored-a.cached)
}

// completed counts a request that was looked up.
func (s *served) completed(v *visit, x *exchange, prompt kv.Prompt, p *plan, a answered) {
	outcome, why := p.outcome(x, a)
	var parted *parting
	if why != figures.NotAnswered { // else nothing was computed
		parted = p.partedEarly(a)
	}
	count := func() {
		q := v.count(x, figures.Request{
			Model: s.named(), Outcome: outcome, Reason: why, Asked: len(prompt.Tokens), Reused: a.cached, Computed: a.prompt,
			Restored: p.restored, Unused: p.unused(a), Lookup: p.lookup, Restore: p.load, Prefill: a.prefill, Parted: parted.figures(),
		})
		s.front.totals.add(s.model, q)
		s.askedBy(q.Client, prompt)
	}
	if parted == nil {
		count()
		return
	}
	// The server is asked for texts: neither the end of a stream nor the next request in the slot waits for that.
	if v.left.IsZero() {
		v.leaves()
	}
	s.wait.Go(count)
}

// passedBy counts a request that was passed on as it is.
func (s *served) passedBy(v *visit, x *exchange, why request.Pass, types string) {
	a := readAnswer(x.kept)
	if !x.whole { // it says how far it was
		a = answered{}
	}
	v.count(x, figures.Request{
		Model: s.named(), Outcome: figures.Pass, Reason: string(why), Types: types, Asked: a.cached + a.prompt, Reused: a.cached, Computed: a.prompt, Prefill: a.prefill,
	})
}

// Figures says what the front has done, and how it is now, for a page or a scrape.
func (f *Front) Figures() figures.Front {
	out := f.record.Read()
	out.SavedEver, out.EverSince = f.totals.sum()
	if store := f.db.Load(); store != nil {
		if st, err := store.Stats(); err == nil {
			out.NotStoring = f.notStoring(st)
		}
	}
	out.Restarts = max(0, f.started.Load()-1)
	if _, err := f.store(); err != nil {
		out.Store = err.Error()
	}
	for _, s := range f.models() {
		m := s.status()
		for _, sl := range m.Slots {
			out.Slots++
			if sl.Busy {
				out.Busy++
			}
		}
		switch {
		case m.Refused != "":
			out.Notes = append(out.Notes, figures.Note{Level: figures.Warn, Text: "Nothing is kept of " + m.Name + ": " + m.Refused})
		}
		for _, r := range m.Resting {
			out.Notes = append(out.Notes, figures.Note{Level: figures.Warn, Text: fmt.Sprintf("Of %s, this is left alone for now: %s, since %s. It is tried again after %d requests, or %s.", m.Name, r.Case, figures.Words(r.Reason), r.Requests, r.Within)})
		}
	}
	return out
}
