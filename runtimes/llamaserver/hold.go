package llamaserver

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/runtimes/internal/modelfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
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

	prepared chan struct{} // closed when it is known what the server runs
	answers  atomic.Int64  // when the server was first seen to answer, in Unix nanoseconds; 0: it does not

	mu  sync.Mutex
	why request.Pass // requests pass, while it is not known what the server runs
}

func newHold() *hold {
	return &hold{met: make(chan struct{}), brief: make(chan struct{}), free: make(chan struct{}), poke: make(chan struct{}, 1), prepared: make(chan struct{}), why: request.PassHashing}
}

// meets says that the server has loaded its model.
func (h *hold) meets() {
	h.answers.CompareAndSwap(0, time.Now().UnixNano())
	h.once[0].Do(func() { close(h.met) })
}

// answered reports whether the server was seen to answer.
func (h *hold) answered() bool { return h.answers.Load() != 0 }

// isPrepared reports whether it is known what the server runs.
func (h *hold) isPrepared() bool {
	select {
	case <-h.prepared:
		return true
	default:
		return false
	}
}

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

// patient waits until the model is prepared, or waiting does not pay. It reports whether the client is still there.
func (h *hold) patient(ctx context.Context) bool {
	select {
	case <-h.prepared:
		return true
	case <-h.met: // until then the server loads the model: whoever asks it something waits for that, too
	case <-h.free:
		return true
	case <-ctx.Done():
		return false
	}
	since := time.Unix(0, h.answers.Load())
	for brief, most := h.brief, heldTime; ; brief, most = nil, briefTime {
		t := time.NewTimer(time.Until(since.Add(most)))
		defer t.Stop()
		select {
		case <-h.prepared:
			return true
		case <-h.free:
			return true
		case <-t.C:
			return true
		case <-ctx.Done():
			return false
		case <-brief:
		}
	}
}

// expectHashing has requests pass while files are hashed that no memo remembers.
func (h *hold) expectHashing(model string, list []api.Adapter, memo string) {
	names := []string{model}
	for _, a := range list {
		names = append(names, a.Path)
	}
	size := int64(0)
	for _, name := range names {
		if _, ok := modelfile.Remembered(name, memo); ok {
			continue
		}
		h.shortens()
		parts, _ := weights.FilesOf(name, nil)
		for _, p := range parts {
			if info, err := os.Stat(p); err == nil {
				size += info.Size()
			}
		}
	}
	if size > quickBytes {
		h.release(request.PassUnhashed)
	}
}
