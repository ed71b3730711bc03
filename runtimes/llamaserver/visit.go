package llamaserver

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/causes"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// visit is a request that computes a prompt, from its arrival to its end. It is counted once, whatever becomes of it, so that counts add up.
type visit struct {
	front    *Front
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

// arrives begins a visit, which the request carries from here on.
func (f *Front) arrives(r *http.Request) (*visit, *http.Request) {
	v := &visit{front: f, began: time.Now(), endpoint: strings.TrimPrefix(r.URL.Path, f.args.Prefix), client: causes.Client(r.Header), ctx: r.Context()}
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
	return v.front.record.Add(q)
}

// leaves says that the client has its answer, or has gone, and that the visit is counted later.
func (v *visit) leaves() { v.counted, v.gone, v.left = true, v.ctx.Err() != nil, time.Now() }

// end counts a visit that has come to nothing: the client left before the server heard of it, or the front itself said what is wrong.
func (v *visit) end() {
	if v.counted {
		return
	}
	q := figures.Request{Outcome: figures.Pass, Reason: string(request.PassServer)}
	if all := v.front.models(); len(all) == 1 {
		q.Model = all[0].named()
	}
	v.count(nil, q)
}
