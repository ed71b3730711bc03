package llamaserver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/answer"
)

// exchange is a request on its way through the proxy.
type exchange struct {
	header func(answer.Answer) string // X-Dormouse of the answer, by what it says of itself; what it has not said yet is not known
	first  chan struct{}
	once   sync.Once
	status int
	began  time.Time // when its first byte came
	kept   []byte    // of the answer
	whole  bool      // the answer came to its end
	sent   bool
	broken any // what the proxy panicked with: the answer broke off
}

type exchangeKey struct{}

// Header is what the answer of a completion says about itself: "hit; tokens=1512; ms=38", "miss; reason=nothing_stored", or "pass; reason=media". A
// stream begins before the server says what it reused: then it is "hit; expected=1512; ms=38". What rules have changed is said behind it:
// "; normalized=billing-header,cwd".
// Where little is reused, "; parted=312; part=tools" says where the prompt parted from the nearest one: see parted.go.
const Header = "X-Dormouse"

func newExchange() *exchange { return &exchange{first: make(chan struct{})} }

// forward hands a request to the server and its answer to the client. An answer that breaks off is noted, since a panic of a
// goroutine that is no request's would end the process: see breakOff.
func (x *exchange) forward(proxy http.Handler, w http.ResponseWriter, r *http.Request) {
	defer func() {
		x.broken = recover()
		x.failed()
	}()
	proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

// answered is called with the server's answer, before any of it is passed on.
func (x *exchange) answered(resp *http.Response) {
	var a answer.Answer
	if resp.StatusCode == http.StatusOK && 0 < resp.ContentLength && resp.ContentLength <= maxHeld { // all of it is there
		x.begins()
		b, err := io.ReadAll(resp.Body)
		a = answer.Read(b)
		resp.Body = readCloser{io.MultiReader(bytes.NewReader(b), &ended{err}), resp.Body}
	}
	resp.Header.Set(Header, x.header(a)+normalizedBy(resp.Request.Context()))
	x.status = resp.StatusCode
	resp.Body = &answer.Tail{ReadCloser: resp.Body, First: x.begins, End: func(kept []byte, whole bool) { x.kept, x.whole = kept, whole }}
}

// maxHeld is how long an answer may be that is read before any of it is passed on, since its end says what was reused.
const maxHeld = 4 << 20

// ended gives an error, or that there is no more.
type ended struct{ err error }

func (e *ended) Read([]byte) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	return 0, io.EOF
}

// begins is called at the answer's first byte.
func (x *exchange) begins() {
	x.once.Do(func() {
		x.began = time.Now()
		close(x.first)
	})
}

// breakOff has the client's connection end where the server's did. It is called last, by the goroutine that serves the request.
func (x *exchange) breakOff() {
	if x.broken != nil {
		panic(x.broken)
	}
}

// failed is called when no answer will come.
func (x *exchange) failed() {
	x.once.Do(func() { close(x.first) })
}

func setBody(r *http.Request, body []byte) {
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	r.TransferEncoding = nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// writeError answers as llama-server does.
func writeError(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": status, "message": message, "type": kind}})
}

// ownKey marks the context of a request that the front makes itself, with the prompt that it is to compute.
type ownKey struct{}

// own is the prompt of a request that the front makes itself.
func own(ctx context.Context) (p kv.Prompt, ok bool) {
	p, ok = ctx.Value(ownKey{}).(kv.Prompt)
	return p, ok
}
