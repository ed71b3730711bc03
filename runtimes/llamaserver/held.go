package llamaserver

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// held waits until a request can go on: its model is prepared, or waiting does not pay. It gives the model's state then, and nil if the request was
// answered, since the server does not answer yet, or if its client has gone.
func (f *Front) held(w http.ResponseWriter, r *http.Request, s *served) *served {
	for {
		if !s.hold.answered() && !s.hold.isPrepared() && !f.answersTo(w, r, s) {
			return nil
		}
		if !s.hold.patient(r.Context()) {
			return nil
		}
		if !s.gone() {
			return s
		}
		next := f.servedFor(s.api.Model) // the server was started again meanwhile, or the store was opened
		if next == s {
			return s
		}
		s = next
	}
}

// answersTo asks the server for a request whether it has begun to answer. If not, the request gets what the server says to that: the request itself never
// reaches a server that gets ready just then, and would compute the prompt.
func (f *Front) answersTo(w http.ResponseWriter, r *http.Request, s *served) bool {
	out, err := http.NewRequestWithContext(r.Context(), http.MethodGet, s.api.Base.JoinPath("/props").String(), nil)
	if err != nil {
		f.log.Debug("asking whether the server answers", "err", err)
		return true
	}
	query := r.URL.Query()
	if s.api.Model != "" { // a router loads the model for who asks this, as it would for the request
		query.Set("model", s.api.Model)
	}
	out.URL.RawQuery, out.Header, out.Host = query.Encode(), r.Header.Clone(), r.Host
	for name := range out.Header {
		if strings.HasPrefix(name, "Content-") || hopByHop[name] {
			delete(out.Header, name)
		}
	}
	resp, err := f.client.Do(out)
	if err != nil {
		if r.Context().Err() == nil {
			w.Header().Set(Header, "pass; reason="+string(request.PassLoading))
			writeError(w, http.StatusServiceUnavailable, "unavailable_error", "llama-server does not answer: "+err.Error())
			visitOf(r).passedBy(s.named(), &exchange{}, request.PassLoading, "")
		}
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		select {
		case s.hold.poke <- struct{}{}:
		default:
		}
		return true
	}
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxHeld))
	if err != nil {
		said = nil
	}
	for name, values := range resp.Header {
		if name != "Content-Length" && !hopByHop[name] {
			w.Header()[name] = values
		}
	}
	w.Header().Set(Header, "pass; reason="+string(request.PassLoading))
	w.WriteHeader(resp.StatusCode)
	io.Copy(w, bytes.NewReader(said))
	visitOf(r).passedBy(s.named(), &exchange{}, request.PassLoading, "")
	return false
}

// hopByHop are headers that are about a connection.
var hopByHop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Expect": true,
	"Accept-Encoding": true,
}
