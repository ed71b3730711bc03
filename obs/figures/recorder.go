package figures

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
)

const (
	// RecentRequests are kept one by one.
	RecentRequests = 100
	maxKinds       = 64
	maxModels      = 64
	maxName        = 200 // bytes of a model's name

	// A prefill tells its rate if it has so many tokens: below that, what a call costs at all outweighs it.
	rateTokens = 32
	// rateMemory is after how many tokens what was measured before counts half.
	rateMemory = 200_000
)

// Recorder adds requests up. The zero value is ready; all methods are safe for concurrent use.
type Recorder struct {
	mu     sync.Mutex
	sum    Front
	rates  map[string]*Rate
	recent []Request // a ring
	next   int       // of recent
	series series
}

// Name is a model's name as it is shown and as it is a label: valid UTF-8 of at most 200 bytes and a bit.
func Name(name string) string {
	if len(name) > maxName {
		name = name[:maxName]
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}

// Add counts a request that has ended. It returns it as it was counted.
func (r *Recorder) Add(q Request) Request {
	now := time.Now()
	if q.Ended.IsZero() || q.Ended.After(now) {
		q.Ended = now
	}
	q.Model = Name(q.Model)
	q.Reason, q.Types = clean(q.Reason), cleanTypes(q.Types)
	q.Endpoint, q.Client = plain(q.Endpoint, maxPath), plain(q.Client, maxClient)
	q.Parted = q.Parted.checked()
	if q.Outcome > Cancelled {
		q.Outcome = Pass
	}
	if q.Cancelled = q.Cancelled || q.Outcome == Cancelled; q.Cancelled {
		q.Outcome, q.Reason = Cancelled, ClientLeft
	}
	for _, n := range []*int{&q.Asked, &q.Reused, &q.Computed, &q.Restored, &q.Unused} {
		*n = max(0, *n)
	}
	for _, d := range []*time.Duration{&q.Lookup, &q.Restore, &q.Prefill, &q.FirstByte} {
		*d = max(0, *d)
	}
	if q.Known() {
		q.Asked = q.Reused + q.Computed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(now)
	kind := Kind{q.Outcome, q.Reason}
	if _, ok := r.sum.Requests[kind]; !ok && len(r.sum.Requests) >= maxKinds {
		kind.Reason = Other
	}
	r.sum.Requests[kind]++
	q.Saved = r.saved(q)

	s := &r.sum
	if q.Known() {
		s.Asked += int64(q.Asked)
	} else {
		s.Unknown += int64(q.Asked)
	}
	s.FromStore += int64(q.FromStore())
	s.Reused += int64(q.Reused)
	s.Computed += int64(q.Computed)
	s.Restored += int64(q.Restored)
	s.Unused += int64(q.Unused)
	s.Saved += q.Saved
	s.Lookup += q.Lookup
	s.Restore += q.Restore
	s.Prefill += q.Prefill

	if len(r.recent) < RecentRequests {
		r.recent = append(r.recent, q)
	} else {
		r.recent[r.next] = q
	}
	r.next = (r.next + 1) % RecentRequests
	p := r.series.at(q.Ended)
	p.add(point(q))
	return q
}

// Observe counts a turn that a runtime drove. It is a [db.Options] Observer. The request's model is the fingerprint; package page shows the
// name that the store has for it.
func (r *Recorder) Observe(o db.Observation) {
	q := Request{
		Outcome: Miss, Reason: Code(o.Reason.Code), Asked: o.Asked, Reused: o.Reused, Computed: o.Prefilled,
		Restored: o.Loaded, Unused: o.Unused, Lookup: o.Lookup, Restore: o.Load, Prefill: o.Prefill, Model: o.Model.String(),
	}
	switch {
	case o.Reused > 0 && o.Loaded > 0:
		q.Outcome = Hit
	case o.Reused > 0:
		q.Outcome = Slot
	case o.Reason.Code == db.NoReason, o.Reason.Code == db.LookupOff:
		q.Outcome = Pass
	}
	r.Add(q)
}

// Remember says what rates were measured before: of models of which none was measured since.
func (r *Recorder) Remember(rates ...Rate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(time.Now())
	for _, x := range rates {
		if x.Model = Name(x.Model); r.rates[x.Model] == nil && len(r.rates) < maxModels && x.PerSecond > 0 {
			r.rates[x.Model] = &x
		}
	}
}

// begin makes the maps. The caller holds mu.
func (r *Recorder) begin(now time.Time) {
	if r.sum.Requests == nil {
		r.sum.Requests, r.rates = map[Kind]int64{}, map[string]*Rate{}
		r.sum.Since = now
	}
}

// saved learns from a prefill how fast its model is, and says what the request was spared. The caller holds mu.
func (r *Recorder) saved(q Request) time.Duration {
	rate := r.rates[q.Model]
	if q.Prefill > 0 && q.Computed >= rateTokens {
		if rate == nil && len(r.rates) < maxModels {
			rate = &Rate{Model: q.Model}
			r.rates[q.Model] = rate
		}
		if rate != nil {
			// The mean of the times: seconds a token, so that a long prompt counts for what it is.
			seconds := q.Prefill.Seconds()
			if rate.PerSecond > 0 {
				seconds += float64(rate.Tokens) / rate.PerSecond
			}
			rate.Tokens += int64(q.Computed)
			rate.PerSecond = float64(rate.Tokens) / seconds
			rate.Measurements++
			if rate.Tokens > rateMemory {
				rate.Tokens /= 2
			}
		}
	}
	used := q.FromStore()
	if rate == nil || used <= 0 {
		return 0
	}
	return max(0, time.Duration(float64(used)/rate.PerSecond*float64(time.Second))-q.Lookup-q.Restore)
}

// Read is what was counted so far.
func (r *Recorder) Read() Front {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(now)
	out := r.sum
	out.Requests = maps.Clone(out.Requests)
	out.Rates = make([]Rate, 0, len(r.rates))
	for _, x := range r.rates {
		out.Rates = append(out.Rates, *x)
	}
	slices.SortFunc(out.Rates, func(a, b Rate) int { return cmp.Compare(a.Model, b.Model) })
	out.Recent = make([]Request, 0, len(r.recent))
	for i := range r.recent {
		out.Recent = append(out.Recent, r.recent[(r.next-1-i+2*RecentRequests)%RecentRequests])
	}
	out.Series = r.series.read(now)
	return out
}
