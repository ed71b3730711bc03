package prefix_test

import (
	"os"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A Reason that nobody filled in does not say that all is there; every other code has a name of its own, and a row in the manual.
func TestReasonCodes(t *testing.T) {
	if zero := (db.Reason{}); zero.Code != db.NoReason || zero.Code == db.Complete || zero.String() != "no reason" {
		t.Errorf("the zero Reason is %v", zero)
	}
	manual, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{db.NoReason.String(): true}
	for c := db.NoReason + 1; int(c) < kv.ReasonCodes; c++ {
		name := c.String()
		if name == "" || seen[name] {
			t.Errorf("code %d is called %q, as another one", uint8(c), name)
		}
		seen[name] = true
		if !strings.Contains(string(manual), "` | "+name) {
			t.Errorf("docs/operations.md has no row for %q", name)
		}
	}
}

// What was not asked for has a reason, too, and Stats counts no match without one.
func TestReasonsAreSaid(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 100)}
	storetest.Put(t, m, p)
	for _, o := range []db.MatchOptions{{}, {Limit: 3}, {Limit: 64}, {NoLookup: true}} {
		for _, asked := range []kv.Prompt{p, {}, {Tokens: crashtest.Tokens(2, 100)}, {Tokens: crashtest.Tokens(1, 200)}} {
			x, err := m.Match(t.Context(), asked, o)
			if err != nil {
				t.Fatal(err)
			}
			got, err := x.Restore(t.Context(), storetest.Empty(m.Descriptor(), 100))
			if err != nil || got.Reason.Code == db.NoReason || x.Reason().Code == db.NoReason {
				t.Errorf("%+v, %d tokens: match %v, restore %v, %v", o, len(asked.Tokens), x.Reason(), got.Reason, err)
			}
			x.Close()
			if _, why, err := m.Probe(t.Context(), asked, o); err != nil || why.Code == db.NoReason {
				t.Errorf("%+v, %d tokens: probe %v, %v", o, len(asked.Tokens), why, err)
			}
			if x, err := m.Explain(t.Context(), asked, o); err != nil || x.Reason.Code == db.NoReason {
				t.Errorf("%+v, %d tokens: explain %v, %v", o, len(asked.Tokens), x.Reason, err)
			}
		}
	}
	if stats, err := s.Stats(); err != nil || stats.Reasons[db.NoReason] != 0 {
		t.Errorf("%d matches have no reason, %v", stats.Reasons[db.NoReason], err)
	}
}
