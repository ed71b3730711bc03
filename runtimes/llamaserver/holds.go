package llamaserver

import (
	"context"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// NothingError is returned for a purge that named what is not stored.
type NothingError struct {
	What  string // what is not stored
	Holds string // what the store has instead, as a sentence without its full stop
}

func (e *NothingError) Error() string { return e.What + ". " + e.Holds }

// nothing returns a *NothingError, or why nobody can say what the store has.
func nothing(ctx context.Context, store *db.Store, format string, args ...any) error {
	models, err := db.Collect(store.Models())
	if err != nil {
		return err
	}
	scopes := map[kv.ScopeID]bool{}
	for b, err := range store.Blocks(ctx) {
		if err != nil {
			return err
		}
		if !b.Scope.IsShared() {
			scopes[b.Scope] = true
		}
	}
	for x, err := range store.Sessions(ctx) {
		if err != nil {
			return err
		}
		scopes[x.Scope] = true
	}
	var names []string
	for _, m := range models {
		if m.Latest {
			names = append(names, fmt.Sprintf("%q", m.Descriptor.Name))
		}
	}
	out := &NothingError{fmt.Sprintf(format, args...), "The store is empty"}
	if len(names)+len(scopes) == 0 {
		return out
	}
	prompts := "nothing of an API key or conversation"
	if n := len(scopes); n > 0 {
		prompts = fmt.Sprintf("prompts of %d %s", n, english.PluralWord(n, "API key or conversation", "API keys or conversations"))
	}
	out.Holds = "The store has " + prompts
	if len(names) > 0 {
		out.Holds = fmt.Sprintf("The store has the %s %s, and %s", english.PluralWord(len(names), "model", ""), strings.Join(names, ", "), prompts)
	}
	return out
}
