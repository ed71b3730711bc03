package db_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// What is called with a context that is done does nothing, and says so.
func TestRemovingWithAContextThatIsDone(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64), Scope: "user", ScopeStart: 16}
	storetest.Put(t, m, p)
	storetest.OK(t, m.SetRef(t.Context(), "ref", p, db.RefOptions{}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, deleted := m.Delete(ctx, p)
	_, scope := s.DeleteScope(ctx, "user")
	for what, err := range map[string]error{
		"Delete": deleted, "DeleteScope": scope, "DeleteRef": s.DeleteRef(ctx, "ref"), "Retire": s.Retire(ctx, m.Fingerprint()),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	storetest.Expect(t, m, p, 64)
	if _, err := s.Ref("ref"); err != nil {
		t.Error(err)
	}
}
