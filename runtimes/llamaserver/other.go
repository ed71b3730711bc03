package llamaserver

import (
	"net/http"
	"strings"

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
		if f.args.Slots == "" && f.o.Attach == "" { // as without us: nobody asked for a folder
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

func (f *Front) forgetSlots() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.served {
		s.mu.Lock()
		for _, sl := range s.slots {
			sl.forget()
		}
		s.mu.Unlock()
	}
}
