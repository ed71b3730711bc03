package llamaserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/runtimes/internal/modelfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// The first request after a start is the one that matters: an agent whose server was restarted repeats its request at once, with a whole conversation. So it
// is held until the model is prepared. While the server loads nothing is held: the server says so itself, and the client asks again.

// How long a request is held at most, from the server's first answer on.
const (
	heldTime  = 5 * time.Second // if rows of the model are stored
	briefTime = time.Second     // else: what the request computes is kept then
)

// Files that are larger take longer to be hashed than a request waits.
const quickBytes = 64 << 20

// hold is what requests wait for while a model is prepared.
type hold struct {
	met   chan struct{} // closed when the server has loaded the model
	brief chan struct{} // closed when it is known that nothing is stored of it
	free  chan struct{} // closed when it is known that its file is to be hashed first
	poke  chan struct{} // a request has seen that the server answers
	once  [3]sync.Once

	mu  sync.Mutex
	why request.Pass // requests pass, while it is not known what the server runs
}

func newHold() *hold {
	return &hold{met: make(chan struct{}), brief: make(chan struct{}), free: make(chan struct{}), poke: make(chan struct{}, 1), why: request.PassHashing}
}

// meets says that the server has loaded its model.
func (h *hold) meets() { h.once[0].Do(func() { close(h.met) }) }

// shortens has requests wait for a short time only.
func (h *hold) shortens() { h.once[2].Do(func() { close(h.brief) }) }

// release has requests pass while the model is being prepared.
func (h *hold) release(why request.Pass) {
	h.mu.Lock()
	h.why = why
	h.mu.Unlock()
	h.once[1].Do(func() { close(h.free) })
}

// reason is why requests pass, while it is not known what the server runs. Of bytes that are read for the first time it says so.
func (h *hold) reason() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why == request.PassHashing {
		return h.why
	}
	return stillReading{h.why}
}

// stillReading is a reason that is also PassHashing: it goes by itself.
type stillReading struct{ why request.Pass }

func (e stillReading) Error() string   { return string(e.why) }
func (e stillReading) Unwrap() []error { return []error{e.why, request.PassHashing} }

// pause waits until it is time to look at the server again.
func (h *hold) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-h.poke:
	case <-time.After(d):
	}
}

// held waits until a request can go on: its model is prepared, or waiting does not pay. It gives the model's state then, and nil if the request was
// answered, since the server does not answer yet, or if its client has gone.
func (f *Front) held(w http.ResponseWriter, r *http.Request, s *served) *served {
	for {
		if s.answers.Load() == 0 && !s.isPrepared() && !f.answersTo(w, r, s) {
			return nil
		}
		if !s.patient(r.Context()) {
			return nil
		}
		if !s.gone.Load() {
			return s
		}
		next := f.servedFor(s.api.Model) // the server was started again meanwhile, or the store was opened
		if next == s {
			return s
		}
		s = next
	}
}

func (s *served) isPrepared() bool {
	select {
	case <-s.prepared:
		return true
	default:
		return false
	}
}

// patient waits until the model is prepared, or waiting does not pay. It reports whether the client is still there.
func (s *served) patient(ctx context.Context) bool {
	select {
	case <-s.prepared:
		return true
	case <-s.hold.met: // until then the server loads the model: whoever asks it something waits for that, too
	case <-s.hold.free:
		return true
	case <-ctx.Done():
		return false
	}
	since := time.Unix(0, s.answers.Load())
	for brief, most := s.hold.brief, heldTime; ; brief, most = nil, briefTime {
		t := time.NewTimer(time.Until(since.Add(most)))
		defer t.Stop()
		select {
		case <-s.prepared:
			return true
		case <-s.hold.free:
			return true
		case <-t.C:
			return true
		case <-ctx.Done():
			return false
		case <-brief:
		}
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
			s.passedBy(visitOf(r), &exchange{}, request.PassLoading, "")
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
	s.passedBy(visitOf(r), &exchange{}, request.PassLoading, "")
	return false
}

// hopByHop are headers that are about a connection.
var hopByHop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Expect": true,
	"Accept-Encoding": true,
}

// expectHashing has requests pass while files are hashed that no memo remembers.
func (s *served) expectHashing(model string, list []api.Adapter) {
	names := []string{model}
	for _, a := range list {
		names = append(names, a.Path)
	}
	size := int64(0)
	for _, name := range names {
		if _, ok := modelfile.Remembered(name, s.front.o.Memo); ok {
			continue
		}
		s.hold.shortens()
		parts, _ := weights.FilesOf(name, nil)
		for _, p := range parts {
			if info, err := os.Stat(p); err == nil {
				size += info.Size()
			}
		}
	}
	if size > quickBytes {
		s.hold.release(request.PassUnhashed)
	}
}

// opened is the store, once it is known whether there is one.
func (f *Front) opened(ctx context.Context) (*db.Store, error) {
	if _, err := f.store(); errors.Is(err, ErrOpening) {
		select {
		case <-f.tried:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return f.store()
}

// stores reports whether a store has rows of a model that such a server computes.
func stores(store *db.Store, id *layout.Identity) bool {
	for st, err := range store.Models() {
		if err != nil {
			return false
		}
		if d := st.Descriptor; st.Err == nil && st.Records > 0 && d.Weights == id.Desc.Weights && strings.HasPrefix(d.StateFormat, id.Desc.StateFormat) {
			return true
		}
	}
	return false
}

// stranger reports whether something answers at the address of a server that somebody else starts, and is none: one may come in its place at any time.
func (s *served) stranger(err error) bool {
	var status *api.StatusError
	return s.front.o.Attach != "" && s.answers.Load() == 0 && errors.As(err, &status) && status.Status == http.StatusNotFound
}

// strange has requests pass, if what a server says before it has loaded a model is neither an answer nor that it will be one: another status, or 200 with
// something else than a llama-server says.
func (s *served) strange(err error) {
	if s.answers.Load() == 0 && !api.Loading(err) && !api.BrokeOff(err) {
		s.hold.release(request.PassServer)
	}
}
