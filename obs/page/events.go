package page

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
)

const (
	maxViewers = 32
	// treeShare bounds the work of drawing: after one that took t, the next begins treeShare * t later.
	treeShare  = 20
	treePause  = 3 * time.Second
	treeOldest = time.Minute // then it is drawn anew though nothing was put or removed: uses have changed
)

// hub asks for figures while somebody looks, once for all who do.
type hub struct {
	o *Options
	// silence is how long nothing is sent before a comment says that somebody is there, patience how long a viewer may take for what is
	// written to it.
	silence, patience time.Duration

	mu      sync.Mutex
	viewers map[*viewer]bool
	last    map[string][]byte // by event: what a new viewer is sent at once
	stop    context.CancelFunc
	closed  bool
}

// viewer has of each event the newest that is not sent yet.
type viewer struct {
	mu      sync.Mutex
	pending map[string][]byte
	wake    chan struct{}
	gone    chan struct{} // closed when the page is
}

func (v *viewer) put(event string, b []byte) {
	v.mu.Lock()
	v.pending[event] = b
	v.mu.Unlock()
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

func (v *viewer) take() map[string][]byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := v.pending
	v.pending = map[string][]byte{}
	return out
}

// enter is nil if there are too many, or the page is closed.
func (h *hub) enter() *viewer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.viewers) >= maxViewers {
		return nil
	}
	v := &viewer{pending: map[string][]byte{}, wake: make(chan struct{}, 1), gone: make(chan struct{})}
	if len(h.viewers) == 0 {
		ctx, stop := context.WithCancel(context.Background())
		h.viewers, h.last, h.stop = map[*viewer]bool{}, map[string][]byte{}, stop
		go h.run(ctx)
	}
	h.viewers[v] = true
	for event, b := range h.last {
		v.put(event, b)
	}
	return v
}

func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.viewers, v); len(h.viewers) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	for v := range h.viewers {
		close(v.gone)
	}
	if h.stop != nil {
		h.stop()
	}
}

// send gives an event to everybody, unless it says what the last one did.
func (h *hub) send(ctx context.Context, event string, b []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil || bytes.Equal(h.last[event], b) { // a run that has ended must not speak for the next one
		return
	}
	h.last[event] = b
	for v := range h.viewers {
		v.put(event, b)
	}
}

// run asks until ctx ends.
func (h *hub) run(ctx context.Context) {
	go h.draw(ctx)
	tick := time.NewTicker(h.o.Every)
	defer tick.Stop()
	for {
		h.send(ctx, "figures", encode(h.o.figures()))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// draw sends trees: one at once, and others as the store changes, but never so often that drawing takes more than its share of the time.
func (h *hub) draw(ctx context.Context) {
	var drawn db.Stats
	var at time.Time
	pause := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = max(treePause, h.o.Every)
		s := h.o.store()
		if s == nil {
			h.send(ctx, "tree", []byte("null"))
			continue
		}
		st, err := s.Stats()
		if err != nil || time.Since(at) < treeOldest && same(st, drawn) {
			continue
		}
		t, err := Draw(ctx, s)
		if err != nil {
			continue // suspended meanwhile: the figures say so
		}
		drawn, at = st, time.Now()
		pause = max(pause, treeShare*t.Took)
		h.send(ctx, "tree", encode(viewOf(t, h.o.Askers)))
	}
}

func same(a, b db.Stats) bool {
	return a.StoredRecords == b.StoredRecords && a.LiveBytes == b.LiveBytes && a.Records == b.Records && a.Evicted == b.Evicted &&
		a.Deleted == b.Deleted && a.Hits == b.Hits && a.AsOf.Equal(b.AsOf)
}

// serve is a stream of events: figures and tree, each the whole of it.
func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	v := h.enter()
	if v == nil {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many are looking", http.StatusServiceUnavailable)
		return
	}
	defer h.leave(v)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	write := func(parts ...[]byte) bool {
		out.SetWriteDeadline(time.Now().Add(h.patience)) // else a viewer that hangs costs a goroutine
		for _, b := range parts {
			if _, err := w.Write(b); err != nil {
				return false
			}
		}
		if out.Flush() != nil {
			return false
		}
		out.SetWriteDeadline(time.Time{}) // one that passes between two writes would end an HTTP/2 stream, and keep an HTTP/1 one from ending well
		return true
	}
	if !write([]byte("retry: 2000\n\n")) {
		return
	}
	quiet := time.NewTimer(h.silence)
	defer quiet.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-v.gone:
			return
		case <-quiet.C:
			if !write([]byte(": here\n\n")) {
				return
			}
		case <-v.wake:
			for event, b := range v.take() {
				if !write([]byte("event: "+event+"\nid: "+strconv.FormatInt(time.Now().UnixMilli(), 10)+"\ndata: "), b, []byte("\n\n")) {
					return
				}
			}
		}
		quiet.Reset(h.silence)
	}
}
