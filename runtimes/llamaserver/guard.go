package llamaserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/proc"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// guard knows whether the server is still the one that was looked at, with the same files and the same adapters.
type guard struct {
	api      *api.Client
	files    *weights.Files
	table    *slots.Table
	life     *life
	log      *slog.Logger
	base     *url.URL
	attached bool // somebody else runs the server
	watch    bool // it changes without the front

	mu       sync.Mutex
	seen     seen
	adapters []api.Adapter
	sleeps   bool // the server gives up its model now and then
}

// seen is what tells a server from one that somebody else has started in its place.
type seen struct {
	props api.Props
	at    string // the socket at which it listens, if that can be seen
	task  int    // the last one that began in a slot: the numbers of a server grow
}

func seenOf(p api.Props, at string) seen {
	p.Sleeping = false
	return seen{props: p, at: at}
}

// at is where the server of somebody else listens. Those of a router have no place that the front knows.
func (g *guard) at() string {
	if !g.attached {
		return ""
	}
	return proc.Listener(g.base)
}

// meets notes what the server says of itself when it is looked at.
func (g *guard) meets(p api.Props) {
	now := seenOf(p, g.at())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = now
}

// has notes the adapters that the server was found with, and whether it sleeps.
func (g *guard) has(list []api.Adapter, sleeps bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.adapters, g.sleeps = list, sleeps
}

// renew has everything looked at anew: the server is another one.
func (g *guard) renew() {
	g.life.era.end()
	g.table.ForgetAll()
}

// replaced reports whether a server that the front has not started is another one now: another model, or started again, maybe with other arguments. All
// is looked at anew then. A router starts its servers with the same arguments: its slots are forgotten, and the rest only if the files changed.
func (g *guard) replaced(ctx context.Context) bool {
	g.mu.Lock()
	before := g.seen // before the server is asked: others ask, too, and may hear of later tasks
	g.mu.Unlock()
	p, err := g.api.Props(ctx)
	if err != nil {
		return false // it is not there: who asks it something hears of that
	}
	list, err := g.api.Slots(ctx)
	if err != nil {
		return false
	}
	now := seenOf(p, g.at())
	for _, st := range list {
		now.task = max(now.task, st.Task())
	}
	again := now.task < before.task
	g.mu.Lock()
	if g.seen.task = max(g.seen.task, now.task); again {
		g.seen.task = now.task
	}
	g.mu.Unlock()
	if again {
		g.table.ForgetIdle()
	}
	others := again && g.files.Restarted()
	if before.props == now.props && (before.at == now.at || before.at == "" || now.at == "") && !(again && g.attached) && !others {
		return false
	}
	if g.life.gone() { // another request saw it first
		return true
	}
	g.log.Info("the server is another one now", "model", p.ModelPath)
	if !again {
		g.files.Restarted()
	}
	g.renew()
	return true
}

// woke looks at what a server says of itself that has loaded its model again: with less memory, its slots may be shorter.
func (g *guard) woke(ctx context.Context) {
	p, err := g.api.Props(ctx)
	if err != nil {
		return
	}
	g.mu.Lock()
	same := g.seen.props == seenOf(p, "").props
	g.mu.Unlock()
	if same || g.life.gone() {
		return
	}
	g.log.Info("the server is another one since it woke", "model", p.ModelPath)
	g.renew()
}

// sameScales gives weights.ErrAnew if the server's adapters have other scales now: whoever asks the server may set them, and it may forget them when it
// sleeps.
func (g *guard) sameScales(ctx context.Context) error {
	g.mu.Lock()
	was, sleeps := g.adapters, g.sleeps
	g.mu.Unlock()
	if len(was) == 0 || !g.watch && !sleeps {
		return nil
	}
	now, err := g.api.Adapters(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", request.PassServer, err)
	case !slices.Equal(now, was):
		return weights.ErrAnew
	}
	return nil
}

// own gives an error unless what a slot holds was computed by the files that were hashed. It is forgotten then, unless the files are just being
// read. The caller has the turn, or the slot.
func (g *guard) own(ctx context.Context, sl *slots.Slot) error {
	err := g.files.Sound(ctx)
	if errors.Is(err, request.PassHashing) {
		return err
	}
	if err == nil {
		err = g.sameScales(ctx)
	}
	drops := g.files.Dropped()
	if err == nil && (g.table.Of(sl).Drops != drops || g.life.gone()) {
		err = weights.ErrAnew
	}
	if err == nil {
		return nil
	}
	if held := g.table.Drop(sl, drops); held > 0 {
		g.log.Warn("what a slot holds is dropped: other rows may have come into it, or other files into the server", "slot", sl.ID, "tokens", held, "err", err)
	}
	return err
}

// ready gives an error unless the server is the one that was looked at, with the files that were hashed.
func (g *guard) ready(ctx context.Context) error {
	err := g.files.Sound(ctx)
	if err == nil && g.life.gone() {
		err = request.PassHashing
	}
	return err
}
