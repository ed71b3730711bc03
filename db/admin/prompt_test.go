package admin_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// PromptTo gives the prompt that was put, spans included, and refuses where the store has not all of it.
func TestPromptTo(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	n := m.Descriptor().BlockTokens*3 + 5
	span := kv.Span{Start: m.Descriptor().BlockTokens - 3, Len: 10, Hash: kv.Hash{7}} // over the end of a block
	ref := func(name string, p kv.Prompt) db.Ref {
		t.Helper()
		storetest.Put(t, m, p)
		storetest.OK(t, m.SetRef(t.Context(), name, p, db.RefOptions{}))
		return storetest.Must(s.Ref(name))(t)
	}
	for name, c := range map[string]struct {
		p   kv.Prompt
		err error
	}{
		"plain":   {p: kv.Prompt{Tokens: crashtest.Tokens(1, n)}},
		"short":   {p: kv.Prompt{Tokens: crashtest.Tokens(2, 16)}},
		"image":   {p: kv.Prompt{Tokens: crashtest.Tokens(3, n), Spans: []kv.Span{span}}},
		"adapter": {p: kv.Prompt{Tokens: crashtest.Tokens(4, n), Adapters: []kv.Adapter{{Hash: kv.Hash{9}, Scale: 1}}}, err: admin.ErrUnknownPrompt},
		"scope":   {p: kv.Prompt{Tokens: crashtest.Tokens(5, n), Scope: "anna", ScopeStart: 20}, err: admin.ErrUnknownPrompt},
	} {
		t.Run(name, func(t *testing.T) {
			model, got, err := admin.PromptTo(t.Context(), s, ref(name, c.p).Block)
			if !errors.Is(err, c.err) || model != m.Fingerprint() {
				t.Fatalf("model %s: %v, expected %v", model, err, c.err)
			}
			if c.err == nil && (!slices.Equal(got.Tokens, c.p.Tokens) || !slices.Equal(got.Spans, c.p.Spans)) {
				t.Errorf("%d tokens, spans %v; expected %d, %v", len(got.Tokens), got.Spans, len(c.p.Tokens), c.p.Spans)
			}
		})
	}
	if _, _, err := admin.PromptTo(t.Context(), s, kv.Key{1}); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("a block that is not stored: %v", err)
	}
}
