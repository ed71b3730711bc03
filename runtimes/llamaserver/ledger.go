package llamaserver

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/answer"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/causes"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// ledger counts requests, and what they were spared.
type ledger struct {
	record figures.Recorder
	totals totals
	askers askers
	log    *slog.Logger
}

// recall reads what earlier fronts of a store have left.
func (l *ledger) recall(store *db.Store) {
	for _, r := range l.totals.recall(store, l.log) {
		l.record.Remember(r)
	}
}

// keep writes the figures that outlive the front.
func (l *ledger) keep(ctx context.Context) { l.totals.keep(ctx, l.record.Read().Rates, l.log) }

// visit is a request that computes a prompt, from its arrival to its end. It is counted once, whatever becomes of it, so that counts add up.
type visit struct {
	ledger   *ledger
	ctx      context.Context // of the request: it ends early if the client leaves
	began    time.Time
	endpoint string
	client   string
	counted  bool
	own      bool      // the front asks by itself: that is no request
	left     time.Time // when the client had its answer, where it is counted later
	gone     bool      // and whether it had gone before
}

type visitKey struct{}

// arrives begins a visit, which the request carries from here on. The endpoint is the request's path.
func (l *ledger) arrives(r *http.Request, prefix string) (*visit, *http.Request) {
	v := &visit{ledger: l, began: time.Now(), endpoint: strings.TrimPrefix(r.URL.Path, prefix), client: causes.Client(r.Header), ctx: r.Context()}
	return v, r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
}

// visitOf is the visit of a request, or nil of one that computes no prompt.
func visitOf(r *http.Request) *visit {
	v, _ := r.Context().Value(visitKey{}).(*visit)
	return v
}

// count counts the visit, with what is known of it: an answer that the client did not wait for is none.
func (v *visit) count(x *exchange, q figures.Request) figures.Request {
	if v.own {
		return figures.Request{}
	}
	gone, ended := v.gone, v.left
	if ended.IsZero() { // else the client has gone its way, and this comes later
		v.counted, gone, ended = true, v.ctx.Err() != nil, time.Now()
	}
	q.Ended, q.Endpoint, q.Client = ended, v.endpoint, v.client
	if x != nil && !x.began.IsZero() {
		q.FirstByte = x.began.Sub(v.began)
	}
	q.Cancelled = gone && (x == nil || !x.whole)
	return v.ledger.record.Add(q)
}

// leaves says that the client has its answer, or has gone, and that the visit is counted later.
func (v *visit) leaves() { v.counted, v.gone, v.left = true, v.ctx.Err() != nil, time.Now() }

// end counts a visit that has come to nothing: the client left before the server heard of it, or the front itself said what is wrong. model is that of the
// server, if it has one alone.
func (v *visit) end(model string) {
	if !v.counted {
		v.count(nil, figures.Request{Model: model, Outcome: figures.Pass, Reason: string(request.PassServer)})
	}
}

// passedBy counts a request that was passed on as it is.
func (v *visit) passedBy(model string, x *exchange, why request.Pass, types string) {
	a := answer.Read(x.kept)
	if !x.whole { // it says how far it was
		a = answer.Answer{}
	}
	v.count(x, figures.Request{
		Model: model, Outcome: figures.Pass, Reason: string(why), Types: types, Asked: a.Cached + a.Prompt, Reused: a.Cached, Computed: a.Prompt, Prefill: a.Prefill,
	})
}

// counter counts the requests of a model that were looked up.
type counter struct {
	model  *db.Model
	store  *db.Store
	ledger *ledger
	work   *sync.WaitGroup
}

// completed counts a request that was looked up.
func (c *counter) completed(v *visit, x *exchange, prompt kv.Prompt, p *plan, a answer.Answer) {
	outcome, why := p.outcome(x, a)
	var parted *parting
	if why != figures.NotAnswered { // else nothing was computed
		parted = p.partedEarly(a)
	}
	count := func() {
		q := v.count(x, figures.Request{
			Model: c.model.Descriptor().Name, Outcome: outcome, Reason: why, Asked: len(prompt.Tokens), Reused: a.Cached, Computed: a.Prompt,
			Restored: p.restored, Unused: p.unused(a), Lookup: p.lookup, Restore: p.load, Prefill: a.Prefill, Parted: parted.figures(),
		})
		c.ledger.totals.add(c.model, q)
		c.askedBy(q.Client, prompt)
	}
	if parted == nil {
		count()
		return
	}
	// The server is asked for texts: neither the end of a stream nor the next request in the slot waits for that.
	if v.left.IsZero() {
		v.leaves()
	}
	c.work.Go(count)
}

// askedBy remembers who asked for a prompt. It does not keep the answer waiting.
func (c *counter) askedBy(client string, prompt kv.Prompt) {
	if client == "" {
		return
	}
	c.work.Go(func() {
		if keys, err := admin.KeysOf(c.store, c.model.Fingerprint(), prompt); err == nil {
			c.ledger.askers.add(client, keys)
		}
	})
}
