package llamaserver

import (
	"fmt"
	"net/http"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/answer"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// plan is what was decided for a request.
type plan struct {
	slot     *slots.Slot
	kind     string // of request, in words
	why      string // nothing was restored, if the store's reason is not why: a code of figures
	held     int    // leading tokens that the slot had
	parts    bool   // the slot had others behind them
	found    int    // that the store has
	restored int
	reason   db.Reason
	near     slots.Nearest // where it parts from the nearest prompt of a slot, as far as that is known before
	parted   *parting      // and from what is stored, too, if little is reused; nil: it does not, or nobody knows
	lookup   time.Duration
	load     time.Duration
	bytes    int64
}

// outcome says what became of a plan, and why no more.
func (p *plan) outcome(x *exchange, a answer.Answer) (figures.Outcome, string) {
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
func (p *plan) reused(a answer.Answer) (n int, known bool) {
	if n = max(p.restored, p.held); a.Known {
		n = a.Cached
	}
	if n < trial.FewTokens {
		n = 0
	}
	return n, a.Known
}

// header is what the answer says of the plan that it was computed by. What is sent before the server has said what it reused is what it is expected to.
func (p *plan) header(a answer.Answer) string {
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
func (p *plan) code(a answer.Answer) string {
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

func (p *plan) observation(prompt kv.Prompt, a answer.Answer) db.Observation {
	return db.Observation{
		Asked: len(prompt.Tokens), Found: p.found, Loaded: p.restored, Reused: a.Cached, Prefilled: a.Prompt, Decoded: a.Decoded, Unused: p.unused(a),
		Lookup: p.lookup, Load: p.load, Prefill: a.Prefill, Decode: a.Decode, Reason: p.reason,
	}
}

// unused are tokens that were restored and computed again.
func (p *plan) unused(a answer.Answer) int {
	if !a.Known {
		return 0
	}
	return max(0, p.restored-a.Cached)
}

// partedEarly is where a prompt parted, if the server did reuse little of it.
func (p *plan) partedEarly(a answer.Answer) *parting {
	if p.parted == nil {
		return nil
	}
	if n, _ := p.reused(a); !early(n, len(p.parted.prompt.Tokens)) {
		return nil
	}
	return p.parted
}
