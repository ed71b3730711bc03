package llamaserver

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/answer"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// other passes what is no completion. Requests that may work in slots, or change them, are told to the model's state.
func (f *Front) other(w http.ResponseWriter, r *http.Request) {
	rest := strings.TrimPrefix(r.URL.Path, f.args.Prefix)
	if rest != "/health" && rest != "/v1/health" { // these wake no server, and are never held
		f.glance(r.Context())
	}
	post := r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
	switch {
	case strings.HasPrefix(rest, "/slots/") && post:
		if f.args.Slots == "" && !f.attached() { // as without us: nobody asked for a folder
			writeError(w, http.StatusNotImplemented, "not_supported_error", "This server does not support slots action. Start it with `--slot-save-path`")
			return
		}
		defer f.forgetSlots()
		if a := r.URL.Query()["action"]; len(a) != 1 || a[0] != "save" && a[0] != "erase" { // a client's file may be of any model
			defer f.soils()()
		}
		f.proxy.ServeHTTP(w, r)
	case strings.HasPrefix(rest, "/lora-adapters") && post, strings.HasPrefix(rest, "/models/") && post, rest == "/props" && post:
		resume := f.still(r.Context())
		defer resume()
		defer f.reset() // what it computes now is something else
		f.proxy.ServeHTTP(w, r)
	case post && !quiet[rest]:
		f.pass(w, r, f.servedFor(""), request.None, nil, request.PassEndpoint)
	default:
		f.proxy.ServeHTTP(w, r)
	}
}

// quiet are the endpoints that do no work in a slot.
var quiet = map[string]bool{
	"/tokenize": true, "/detokenize": true, "/apply-template": true, "/tools": true, "/cors-proxy": true, "/v1/streams/lookup": true,
	"/v1/messages/count_tokens": true, "/responses/input_tokens": true, "/v1/responses/input_tokens": true,
	"/chat/completions/input_tokens": true, "/v1/chat/completions/input_tokens": true, "/v1/chat/completions/control": true,
}

// pass hands a request on that may work in any slot.
func (f *Front) pass(w http.ResponseWriter, r *http.Request, s *served, e request.Endpoint, body []byte, why error) {
	reason := reasonOf(why)
	if _, ours := own(r.Context()); ours { // in a slot of the server's choice it would not be kept
		writeError(w, http.StatusServiceUnavailable, "unavailable_error", reason.Error())
		return
	}
	f.glance(r.Context())
	if e != request.None {
		f.log.Debug("passing a request", "endpoint", e, "reason", reason, "err", why)
	}
	if body != nil {
		setBody(r, body)
	}
	soils := e != request.None && (body == nil || e.MayShift(body))
	types := typesOf(why)
	says := "pass; reason=" + string(reason)
	if types != "" {
		says += "; type=" + types
	}
	x := newExchange()
	x.header = func(answer.Answer) string { return says }
	if k, err := s.ready(); err != nil || s.gone() { // nothing of it is in a slot that was saved, or will be
		if f.o.ScopeByKey {
			uncached(r, e, body)
		}
		if soils {
			defer s.files.Soils()()
		}
		x.forward(f.proxy, w, r)
	} else {
		f.passThrough(w, r, s, k, x, soils, func() { k.apart.forPass(r.Context(), r, e, body) })
	}
	if v := visitOf(r); v != nil {
		v.passedBy(s.named(), x, reason, types)
	}
	x.breakOff()
}

// settle is how long a server takes, at most but for a busy machine, from a request to its slot.
const settle = 50 * time.Millisecond

// passThrough has a request work in whichever slot the server chooses. What only slots have is saved before, since it may be lost, and since the request
// may soil them.
func (f *Front) passThrough(w http.ResponseWriter, r *http.Request, s *served, k *kept, x *exchange, soils bool, apart func()) {
	turn, err := s.table.Take(r.Context())
	if err != nil {
		return
	}
	k.saver.saveOthers(r.Context(), nil)
	apart()
	if soils {
		defer s.files.Soils()()
	}
	defer s.table.Passes(ScopeOfKey(keyOf(r)))()
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.forward(f.proxy, w, r)
	}()
	select { // until the request is in a slot, as far as one can tell
	case <-x.first:
	case <-time.After(settle):
	}
	turn.Give()
	<-done
}

// typesOf are the types of a request's parts for which it passes, if it is because of such.
func typesOf(err error) string {
	var b request.Because
	errors.As(err, &b)
	return b.Types.String()
}
