package llamaserver

import (
	"fmt"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Outcomes of a request.
const (
	Hit    = "hit"  // a prefix was restored from the store
	InSlot = "slot" // the slot had as much as was worth having
	Miss   = "miss" // nothing was there, or too little to pay
	Pass   = "pass" // the request went to the server as it was
	hitFmt = "hit; tokens=%d; ms=%d"
)

// Request is what is remembered of a completion: figures, never its text or tokens.
type Request struct {
	Time     time.Time
	Endpoint string
	Model    string
	Outcome  string // Hit, InSlot, Miss or Pass
	Reason   string // of a Pass, and why a lookup found no more
	Status   int
	Asked    int // tokens of the prompt; 0: not known
	Found    int // of these, that the store had
	Restored int // that were restored
	Reused   int // that the server did not compute
	Computed int
	Decoded  int
	Lookup   time.Duration
	Load     time.Duration // slot file and restore
	First    time.Duration // until the answer's first byte, as the front saw it
	Saved    time.Duration // what computing the restored tokens would have taken, as measured
}

// Figures are counters since the front was started.
type Figures struct {
	Outcomes  map[string]int64 // by Request.Outcome
	Reasons   map[string]int64 // by Request.Reason, of passes
	Asked     int64            // tokens
	Restored  int64
	Reused    int64
	Computed  int64
	Decoded   int64
	NotReused int64 // requests whose restored tokens the server computed again
	Saved     time.Duration
	Saves     int64 // slots that were saved
	SaveTime  time.Duration
	StoreTime time.Duration // of putting them into the store, in the background
	Restarts  int64         // of the server
}

// lastRequests is how many are remembered.
const lastRequests = 100

// recorder counts. Safe for concurrent use.
type recorder struct {
	mu      sync.Mutex
	figures Figures
	last    []Request // a ring, oldest at next
	next    int
}

func newRecorder() *recorder {
	return &recorder{figures: Figures{Outcomes: map[string]int64{}, Reasons: map[string]int64{}}}
}

func (r *recorder) add(q Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &r.figures
	f.Outcomes[q.Outcome]++
	if q.Outcome == Pass {
		f.Reasons[q.Reason]++
	}
	f.Asked += int64(q.Asked)
	f.Restored += int64(q.Restored)
	f.Reused += int64(q.Reused)
	f.Computed += int64(q.Computed)
	f.Decoded += int64(q.Decoded)
	f.Saved += q.Saved
	if len(r.last) < lastRequests {
		r.last = append(r.last, q)
		return
	}
	r.last[r.next] = q
	r.next = (r.next + 1) % lastRequests
}

func (r *recorder) saved(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.figures.Saves++
	r.figures.SaveTime += d
}

func (r *recorder) stored(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.figures.StoreTime += d
}

func (r *recorder) completed(s *served, e endpoint, prompt kv.Prompt, p *plan, a answered, x *exchange, begin time.Time) {
	q := Request{
		Time: begin, Endpoint: e.String(), Model: s.name, Outcome: p.outcome(), Status: x.status, Asked: len(prompt.Tokens), Found: p.found, Restored: p.restored,
		Reused: a.cached, Computed: a.prompt, Decoded: a.decoded, Lookup: p.lookup, Load: p.load, First: x.ttft,
	}
	if p.reason.Code != db.NoReason {
		q.Reason = p.reason.Code.String()
	}
	if a.known {
		q.Saved = max(0, s.costs.saved(min(p.restored, a.cached))-p.lookup-p.load)
	}
	r.add(q)
}

func (r *recorder) passed(s *served, e endpoint, why passed, a answered, x *exchange, begin time.Time) {
	r.add(Request{
		Time: begin, Endpoint: e.String(), Model: s.name, Outcome: Pass, Reason: string(why), Status: x.status, Asked: a.cached + a.prompt, Reused: a.cached,
		Computed: a.prompt, Decoded: a.decoded, First: x.ttft,
	})
}

// Figures returns the counters.
func (f *Front) Figures() Figures {
	f.record.mu.Lock()
	defer f.record.mu.Unlock()
	out := f.record.figures
	out.Outcomes, out.Reasons = copied(out.Outcomes), copied(out.Reasons)
	out.NotReused, out.Restarts = f.notReused.Load(), f.restarts.Load()
	return out
}

func copied(m map[string]int64) map[string]int64 {
	out := make(map[string]int64, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// Requests returns the last requests, the newest first.
func (f *Front) Requests() []Request {
	f.record.mu.Lock()
	defer f.record.mu.Unlock()
	n := len(f.record.last)
	out := make([]Request, 0, n)
	for i := range n {
		out = append(out, f.record.last[(f.record.next+n-1-i)%n])
	}
	return out
}

func (p *plan) outcome() string {
	switch {
	case p.restored > 0:
		return Hit
	case p.held >= fewTokens:
		return InSlot
	}
	return Miss
}

// header is what the answer says of the plan that it was computed by.
func (p *plan) header() string {
	switch p.outcome() {
	case Hit:
		return fmt.Sprintf(hitFmt, p.restored, (p.lookup + p.load).Milliseconds())
	case InSlot:
		return fmt.Sprintf("slot; tokens=%d", p.held)
	}
	return "miss; reason=" + p.reason.Code.String()
}

func (p *plan) observation(prompt kv.Prompt, a answered) db.Observation {
	o := db.Observation{
		Asked: len(prompt.Tokens), Found: p.found, Loaded: p.restored, Reused: a.cached, Prefilled: a.prompt, Decoded: a.decoded,
		Lookup: p.lookup, Load: p.load, Prefill: a.prefill, Decode: a.decode, Reason: p.reason,
	}
	if a.known && a.cached < p.restored {
		o.Unused = p.restored - a.cached
	}
	return o
}
