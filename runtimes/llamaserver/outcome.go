package llamaserver

import (
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// outcome says what became of a plan.
func (p *plan) outcome() figures.Outcome {
	if p.restored > 0 || p.held >= fewTokens {
		return figures.Hit
	}
	return figures.Miss
}

// header is what the answer says of the plan that it was computed by.
func (p *plan) header() string {
	switch {
	case p.restored > 0:
		return fmt.Sprintf("hit; tokens=%d; ms=%d", p.restored, (p.lookup + p.load).Milliseconds())
	case p.held >= fewTokens:
		return fmt.Sprintf("slot; tokens=%d", p.held)
	}
	return "miss; reason=" + p.code()
}

// code is why no more was found.
func (p *plan) code() string {
	if p.restored == 0 && p.held >= fewTokens {
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

func (s *served) completed(prompt kv.Prompt, p *plan, a answered) {
	s.front.record.Add(figures.Request{
		Ended: time.Now(), Model: s.named(), Outcome: p.outcome(), Reason: p.code(), Asked: len(prompt.Tokens), Reused: a.cached, Computed: a.prompt,
		Restored: p.restored, Unused: p.unused(a), Lookup: p.lookup, Restore: p.load, Prefill: a.prefill,
	})
}

func (s *served) passedBy(why request.Pass, a answered) {
	s.front.record.Add(figures.Request{
		Ended: time.Now(), Model: s.named(), Outcome: figures.Pass, Reason: string(why), Asked: a.cached + a.prompt, Reused: a.cached, Computed: a.prompt, Prefill: a.prefill,
	})
}

// Figures says what the front has done, and how it is now, for a page or a scrape.
func (f *Front) Figures() figures.Front {
	out := f.record.Read()
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
