package llamaserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// With Options.ScopeByKey what one API key has computed is not reused for another, but for a system prompt that both have. The store sees to that for
// itself. A server reuses whatever its slots begin with: so what a slot holds of another key is emptied before a request that begins like it, and the
// shared system prompt is restored. The server's own cache in memory knows no keys, and is switched off (see [Arguments.withoutRAM]).
//
// Who cannot name its slot (/v1/messages, requests that pass) may get any: then this holds for all slots, and what other keys have at work that begins
// like it is waited for.

// bothHave is how many leading tokens two prompts of different keys may share.
func bothHave(a, b kv.Prompt) int { return min(a.ScopeStart, b.ScopeStart) }

// mayReuse reports whether a request may find what a slot holds. A prompt without tokens is one that is not known. The caller holds mu.
func (s *served) mayReuse(sl *slot, prompt kv.Prompt) bool {
	switch held := sl.prompt; {
	case sl.empty:
		return true
	case sl.coming && held.Scope == prompt.Scope: // its tokens are not known yet, but whose they are
		return true
	case len(held.Tokens) == 0: // nobody knows whose it is
		return false
	case held.Scope == prompt.Scope:
		return true
	case len(prompt.Tokens) == 0:
		return false
	default: // what was decoded behind the prompt is of the same key, and not known
		n := alike(held.Tokens, prompt.Tokens)
		return n < len(held.Tokens) && n <= bothHave(held, prompt)
	}
}

// alike is how many leading tokens are the same.
func alike(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// apart empties the slot of a request of what it may not reuse; only nil: all slots. What is at work, it waits for, or gives false. The caller has the turn.
func (s *served) apart(ctx context.Context, only *slot, prompt kv.Prompt, wait bool) (bool, error) {
	if !s.front.o.ScopeByKey {
		return true, nil
	}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		working, err := s.clearOf(ctx, only, prompt)
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

// clearOf is one look at the slots. It reports whether something is at work that is to be waited for.
func (s *served) clearOf(ctx context.Context, only *slot, prompt kv.Prompt) (working bool, err error) {
	s.mu.Lock()
	for scope, n := range s.passing { // in which slot, nobody knows
		working = working || n > 0 && scope != prompt.Scope
	}
	var others []*slot
	for _, sl := range s.slots {
		if (only == nil || sl == only) && !s.mayReuse(sl, prompt) {
			others = append(others, sl)
		}
	}
	s.mu.Unlock()
	if len(others) == 0 {
		return working, nil
	}
	list, err := s.api.Slots(ctx)
	if err != nil {
		return false, err
	}
	for _, sl := range others {
		if slices.ContainsFunc(list, func(st api.Slot) bool { return st.ID == sl.id && st.Processing }) {
			working = true
			continue
		}
		if s.unsavedAtEnd(sl) {
			s.save(ctx, sl)
		}
		if err := s.api.Erase(ctx, sl.id); err != nil {
			return false, fmt.Errorf("emptying slot %d of what another API key has computed: %w", sl.id, err)
		}
		s.mu.Lock()
		sl.forget()
		sl.empty = true
		s.mu.Unlock()
	}
	return working, nil
}

// unsavedAtEnd reports whether a slot in which the server works no more is to be saved. What is done is released soon, unless its client reads slowly: until
// then nobody knows whether its rows may be stored. The caller has the turn.
func (s *served) unsavedAtEnd(sl *slot) bool {
	for range 20 {
		s.mu.Lock()
		soon, unsaved := sl.unsaved && sl.working && !sl.slow, sl.unsaved && !sl.working
		s.mu.Unlock()
		if !soon {
			return unsaved
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sl.slow = sl.working
	return sl.unsaved && !sl.working
}

// apartForPass does for a request that passes what apart does for others: its slot is the server's choice, and its tokens are not known. Where it would have
// to wait, or slots cannot be emptied, the request says that the server is to reuse nothing, if its endpoint can say so.
func (s *served) apartForPass(ctx context.Context, r *http.Request, e request.Endpoint, body []byte) {
	prompt := kv.Prompt{Scope: ScopeOfKey(keyOf(r))}
	ok, err := s.apart(ctx, nil, prompt, false)
	if ok || uncached(r, e, body) {
		return
	}
	if err == nil {
		_, err = s.apart(ctx, nil, prompt, true)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("a request may reuse what another API key has computed", "path", r.URL.Path, "err", err)
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

// passes counts a request of a key that works in slots which nobody here knows.
func (s *served) passes(scope string, n int) {
	if !s.front.o.ScopeByKey {
		return
	}
	if s.passing[scope] += n; s.passing[scope] == 0 {
		delete(s.passing, scope)
	}
}

// startsWithoutRAM has the server be started without its own cache in memory, and says so.
func (a *Arguments) startsWithoutRAM(log *slog.Logger) {
	if asked := a.withoutRAM(); len(asked) > 1 && asked[1] != "0" {
		log.Warn("the server is started without its cache in memory, which knows no API keys (--scope-by-key)", "instead of", strings.Join(asked, " "))
		return
	}
	log.Info("the server is started without its cache in memory (--cache-ram 0), which knows no API keys (--scope-by-key)")
}

// saysApart tells who keeps requests apart by their keys what the server does of its own.
func (s *served) saysApart(seen *Arguments) {
	if s.front.o.ScopeByKey && s.front.o.Attach != "" && (seen == nil || !seen.idle.noRAM) {
		s.log.Warn("for --scope-by-key this server should be started with --cache-ram 0: its own cache in memory gives what one API key has computed to another")
	}
}
