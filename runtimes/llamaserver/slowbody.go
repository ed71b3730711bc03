package llamaserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// pace is how long bodies of requests are waited for. A client that sends none, or a byte now and then, would hold a goroutine and memory for ever. A long
// upload over a slow line goes on.
type pace struct {
	silence time.Duration // without a byte
	grace   time.Duration // for a body that comes more slowly than rate
	rate    int64         // bytes a second
}

var bodyPace = pace{silence: 30 * time.Second, grace: time.Minute, rate: 4 << 10}

// errSlow is what reading a body gives that comes too slowly.
var errSlow = errors.New("the body of the request did not come, or too slowly")

// slowBody ends a body that comes too slowly.
type slowBody struct {
	io.ReadCloser
	p      pace
	conn   *http.ResponseController
	waited time.Duration // for its bytes: as long as nobody reads it, none can come
	n      int64
	always bool        // the deadline of HTTP/2 ends a body that nobody reads just then, too
	slow   atomic.Bool // it has ended so
}

type slowBodyKey struct{}

// inTime gives a request a body that ends if it comes too slowly.
func (p pace) inTime(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	b := &slowBody{ReadCloser: r.Body, p: p, conn: http.NewResponseController(w), always: r.ProtoMajor > 1}
	r = r.WithContext(context.WithValue(r.Context(), slowBodyKey{}, b))
	r.Body = b
	return r
}

// wasSlow reports whether the body of a request came too slowly. Its context is at its end then, too, as if the client had gone.
func wasSlow(r *http.Request) bool {
	b, ok := r.Context().Value(slowBodyKey{}).(*slowBody)
	return ok && b.slow.Load()
}

func (b *slowBody) Read(buf []byte) (int, error) {
	now := time.Now()
	until, end := now.Add(b.p.silence), now.Add(b.p.grace+time.Duration(b.n/b.p.rate)*time.Second-b.waited)
	if end.Before(until) {
		until = end
	}
	b.conn.SetReadDeadline(until) // a connection that knows none is one of a test
	n, err := b.ReadCloser.Read(buf)
	b.n += int64(n)
	b.waited += time.Since(now)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.slow.Store(true)
		err = errSlow
	case err != nil, b.always: // the end: what follows on this connection has time
		b.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}

// writeSlow answers a request whose body did not come.
func writeSlow(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	writeError(w, http.StatusRequestTimeout, "invalid_request_error", errSlow.Error())
}
