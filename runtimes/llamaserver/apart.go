package llamaserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
)

// With Options.ScopeByKey what one API key has computed is not reused for another, but for a system prompt that both have. The store sees to that for
// itself. A server reuses whatever its slots begin with: so what a slot holds of another key is emptied before a request that begins like it, and the
// shared system prompt is restored. The server's own cache in memory knows no keys, and is switched off (see [Arguments.withoutRAM]).
//
// Who cannot name its slot (/v1/messages, requests that pass) may get any: then this holds for all slots, and what other keys have at work that begins
// like it is waited for.

// apart keeps the slots of different API keys apart.
type apart struct {
	byKey bool // else it does nothing
	api   *api.Client
	table *slots.Table
	saver *saver
	log   *slog.Logger
}

// clear empties the slot of a request of what it may not reuse; with only nil, all slots. It waits for what is at work, or, without wait, returns false.
// The caller has the turn.
func (a *apart) clear(ctx context.Context, only *slots.Slot, prompt kv.Prompt, wait bool) (bool, error) {
	if !a.byKey {
		return true, nil
	}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		working, err := a.clearOnce(ctx, only, prompt)
		if err != nil || !working {
			return err == nil, err
		}
		if !wait {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// clearOnce is one look at the slots. It reports whether something is at work that is to be waited for.
func (a *apart) clearOnce(ctx context.Context, only *slots.Slot, prompt kv.Prompt) (working bool, err error) {
	others, working := a.table.Others(only, prompt)
	if len(others) == 0 {
		return working, nil
	}
	list, err := a.api.Slots(ctx)
	if err != nil {
		return false, err
	}
	for _, sl := range others {
		if slices.ContainsFunc(list, func(st api.Slot) bool { return st.ID == sl.ID && st.Processing }) {
			working = true
			continue
		}
		if a.table.UnsavedAtEnd(sl) {
			a.saver.save(ctx, sl)
		}
		if err := a.api.Erase(ctx, sl.ID); err != nil {
			return false, fmt.Errorf("emptying slot %d of what another API key has computed: %w", sl.ID, err)
		}
		a.table.Empty(sl)
	}
	return working, nil
}

// forPass does for a request that passes what clear does for others: its slot is the server's choice, and its tokens are not known. Where it would have
// to wait, or slots cannot be emptied, the request says that the server is to reuse nothing, if its endpoint can say so.
func (a *apart) forPass(ctx context.Context, r *http.Request, e request.Endpoint, body []byte) {
	if !a.byKey {
		return
	}
	prompt := kv.Prompt{Scope: ScopeOfKey(keyOf(r))}
	ok, err := a.clear(ctx, nil, prompt, false)
	if ok || uncached(r, e, body) {
		return
	}
	if err == nil {
		_, err = a.clear(ctx, nil, prompt, true)
	}
	if err != nil && ctx.Err() == nil {
		a.log.Warn("a request may reuse what another API key has computed", "path", r.URL.Path, "err", err)
	}
}

// uncached has a request reuse nothing that the server has, if it can say that.
func uncached(r *http.Request, e request.Endpoint, body []byte) bool {
	if e == request.None || !e.Pins() || body == nil {
		return false
	}
	req, err := request.Fields(e, body)
	if err != nil {
		return false
	}
	setBody(r, req.With(`"cache_prompt":false`))
	return true
}
