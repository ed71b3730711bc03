package prefix_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A Reason that nobody filled in does not say that all is there; every other code has a name of its own, and a row in the manual.
func TestReasonCodes(t *testing.T) {
	if zero := (db.Reason{}); zero.Code != db.NoReason || zero.Code == db.Complete || zero.String() != "no reason" {
		t.Errorf("the zero Reason is %v", zero)
	}
	manual := storetest.Must(os.ReadFile("../../../docs/operations.md"))(t)
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
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 100)}
	storetest.Put(t, m, p)
	for _, o := range []db.MatchOptions{{}, {Limit: 3}, {Limit: 64}, {NoLookup: true}} {
		for _, asked := range []kv.Prompt{p, {}, {Tokens: crashtest.Tokens(2, 100)}, {Tokens: crashtest.Tokens(1, 200)}} {
			x := storetest.Must(m.Match(t.Context(), asked, o))(t)
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

// Where no stored prompt begins with the 16 tokens, the reason is the same whatever the Bloom filter says: it still knows what was deleted, and
// a store that is open read-only has none.
func TestNothingStored(t *testing.T) {
	for name, d := range map[string]kv.Descriptor{"rows": crashtest.Plain(), "windows": crashtest.Windowed(32), "states": crashtest.Opaque()} {
		t.Run(name, func(t *testing.T) {
			s, m := storetest.Fresh(t, storetest.Options(), d)
			dir := s.Dir()
			kept, gone := crashtest.Tokens(1, 100), crashtest.Tokens(2, 100)
			storetest.Put(t, m, kv.Prompt{Tokens: kept})
			storetest.Put(t, m, kv.Prompt{Tokens: gone})
			storetest.Put(t, m, kv.Prompt{Tokens: gone, Scope: "anna", ScopeStart: 8})
			storetest.Must(m.Delete(t.Context(), kv.Prompt{Tokens: gone[:1]}))(t)
			check := func(when string) {
				t.Helper()
				for what, p := range map[string]kv.Prompt{
					"deleted":           {Tokens: gone},
					"unknown":           {Tokens: crashtest.Tokens(3, 100)},
					"5 tokens of it":    {Tokens: crashtest.Concat(kept[:5], crashtest.Tokens(4, 100))},
					"15 tokens of it":   {Tokens: crashtest.Concat(kept[:15], crashtest.Tokens(4, 100))},
					"in another scope":  {Tokens: kept, Scope: "bert"},
					"an image in it":    {Tokens: kept, Spans: []kv.Span{{Start: 3, Len: 30, Hash: kv.Hash{1}}}},
					"as long as it is":  {Tokens: crashtest.Tokens(5, 16)},
					"with a scope at 8": {Tokens: gone, Scope: "bert", ScopeStart: 8},
				} {
					if n, why, err := m.Probe(t.Context(), p, db.MatchOptions{}); err != nil || n != 0 || why != (db.Reason{Code: db.NothingStored}) {
						t.Errorf("%s, %s: %d tokens, %v, %v", when, what, n, why, err)
					}
				}
				if n, why, err := m.Probe(t.Context(), kv.Prompt{Tokens: crashtest.Concat(kept[:20], crashtest.Tokens(4, 100))}, db.MatchOptions{}); err != nil || name == "rows" && n != 20 ||
					name != "states" && (why.Code != db.Diverged && why.Code != db.WindowMissing || why.At == 0) {
					t.Errorf("%s, 20 tokens of it: %d tokens, %v, %v", when, n, why, err)
				}
			}
			check("after a deletion")
			storetest.OK(t, s.Close())
			o := storetest.Options()
			o.ReadOnly = true
			s = storetest.Open(t, dir, o)
			var err error
			if m, err = s.Model(m.Fingerprint()); err != nil {
				t.Fatal(err)
			}
			check("read-only")
		})
	}
}

// A put that lacks the rows before its own says how many it needs of them, not where the first block that is missing ends.
func TestNeededRows(t *testing.T) {
	_, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 100)}
	for _, stored := range []int{0, 40} {
		if stored > 0 {
			storetest.Put(t, m, p.Prefix(stored))
		}
		_, err := m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 60, 100), db.PutOptions{})
		var missing *db.NotStoredError
		if !errors.As(err, &missing) || missing.Stored != stored || missing.Needed != 60 {
			t.Errorf("%d tokens stored, rows [60, 100): %v", stored, err)
		}
	}
}
