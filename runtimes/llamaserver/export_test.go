package llamaserver

import (
	"context"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slotfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// What the tests of this package see of a front that no user can see.

const (
	ExplainedRequests = explainedRequests
	ExplainedText     = explainedText
)

// EraseSlots empties all slots.
func (f *Front) EraseSlots(ctx context.Context) {
	f.eraseSlots(ctx)
	f.forgetSlots()
}

// Files is what is known of the files that the server has loaded.
func (f *Front) Files() *weights.Files { return f.servedFor("").files }

// Look asks the server for its slots.
func (f *Front) Look() *slots.Look { return f.servedFor("").look }

// Ready is why nothing is kept of the server's model.
func (f *Front) Ready() error {
	_, err := f.servedFor("").ready()
	return err
}

// Known is what was learned of the server. It is gone when the front looks at the server anew.
func (f *Front) Known() interface{ Gone() bool } { return f.servedFor("").life }

// Gone reports whether the front looks at the server anew.
func (l *life) Gone() bool { return l.gone() }

// PrepareNow looks at the server's model once.
func (f *Front) PrepareNow(ctx context.Context) error { return f.servedFor("").prepare(ctx) }

// IsPrepared reports whether it is known what the server runs.
func (f *Front) IsPrepared() bool { return f.servedFor("").hold.isPrepared() }

// Folder is that of slot files.
func (f *Front) Folder() *slotfile.Folder { return f.folder }

// Counted are the kinds of requests of which the server has counted as many tokens as the front.
func (f *Front) Counted() map[string]bool {
	k, err := f.servedFor("").ready()
	if err != nil {
		return nil
	}
	return k.prompts.counted
}

// Flush saves all that only slots have.
func (f *Front) Flush(ctx context.Context) error {
	k, err := f.servedFor("").ready()
	if err != nil {
		return err
	}
	return k.saver.flush(ctx)
}

// SetPace says how long bodies are waited for.
func (f *Front) SetPace(silence, grace time.Duration, rate int64) {
	f.bodies = pace{silence: silence, grace: grace, rate: rate}
}

// AddExplained adds a request that parted from another one.
func (f *Front) AddExplained(x Explained) { f.explained.add(x) }

// AtIdle does nothing at idle, in place of what the front would do, until free is called. The context ends when a request comes.
func (f *Front) AtIdle(ctx context.Context) (idle context.Context, free func(), err error) {
	f.warming.turn.Lock()
	idle, cancel, err := f.traffic.idle(ctx, 0)
	if err != nil {
		f.warming.turn.Unlock()
		return nil, nil, err
	}
	return idle, sync.OnceFunc(func() {
		cancel()
		f.warming.turn.Unlock()
	}), nil
}

// BeginTraffic counts a request that is under way.
func (f *Front) BeginTraffic() (end func()) { return f.traffic.begin() }

// AddSaved adds time that was saved.
func (f *Front) AddSaved(d time.Duration) {
	t := &f.ledger.totals
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.of {
		x.Saved += d
	}
}

// KeepTotals does what is done each minute.
func (f *Front) KeepTotals(ctx context.Context) { f.ledger.keep(ctx) }

// Port is where the server listens.
func (p *Process) Port() int { return p.port }

// SetPort has the server listen elsewhere.
func (p *Process) SetPort(port int) { p.port = port }
