package together

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/tests/together/truth"
)

// What happens to an open match, whose rows were asked for before or were not, when the store does something to them; and
// that the bytes go when it is closed.
func TestLeaseOver(t *testing.T) {
	deleted := func(s *db.Store, m *db.Model, p kv.Prompt) error {
		_, err := m.Delete(ctx, p.Prefix(1))
		return err
	}
	for _, c := range []struct {
		name     string
		do       func(s *db.Store, m *db.Model, p kv.Prompt) error
		restored int // tokens of the match that was restored before
		late     int // of the one that was not; -1: the last blocks or none
		stored   int // what others find
		err      error
	}{
		{"eviction", func(s *db.Store, _ *db.Model, _ kv.Prompt) error { _, err := s.Shrink(ctx, 0); return err }, 200, 200, 200, nil},
		{"moderate pressure", func(s *db.Store, _ *db.Model, _ kv.Prompt) error { _, err := s.Pressure(ctx, db.Moderate); return err }, 200, 200, 200, nil},
		{"critical pressure", func(s *db.Store, _ *db.Model, _ kv.Prompt) error { _, err := s.Pressure(ctx, db.Critical); return err }, 200, 200, 200, nil},
		{"compaction", func(s *db.Store, m *db.Model, _ kv.Prompt) error {
			if err := errors.Join(s.Suspend(ctx), s.Resume(ctx)); err != nil { // so that its segment is finished
				return err
			}
			done, err := s.Compact(ctx, db.CompactOptions{All: true})
			if err == nil && done.Records == 0 {
				err = errors.New("nothing was moved: this test shows nothing")
			}
			return err
		}, 200, 200, 200, nil},
		{"deletion", deleted, 200, -1, 0, nil},
		{"deletion of the scope", func(s *db.Store, _ *db.Model, p kv.Prompt) error { _, err := s.DeleteScope(ctx, p.Scope); return err }, 200, -1, 0, nil},
		{"retirement", func(s *db.Store, m *db.Model, _ kv.Prompt) error { return s.Retire(ctx, m.Fingerprint()) }, 0, 0, 0, db.ErrRetired},
		{"suspension", func(s *db.Store, _ *db.Model, _ kv.Prompt) error {
			return errors.Join(s.Suspend(ctx), s.Resume(ctx))
		}, 200, 200, 200, nil},
		{"close", func(s *db.Store, _ *db.Model, _ kv.Prompt) error {
			if err := s.Close(); !errors.Is(err, db.ErrLeased) || !strings.Contains(err.Error(), "2 matches") {
				return errors.Join(errors.New("close with two open matches"), err)
			}
			return nil
		}, 200, 200, 200, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, t.TempDir(), options())
			m := model(t, s, truth.Plain("lease", 32))
			p := truth.Prompt(truth.Tokens(1, 200))
			p.Scope = "alice"
			put(t, m, p)
			other := truth.Prompt(truth.Tokens(2, 100))
			put(t, m, other)
			early, late := match(t, m, p), match(t, m, p)
			if n, why := restored(t, m, early); n != 200 {
				t.Fatalf("%d tokens: %v", n, why)
			}
			if c.name == "compaction" { // leave a hole
				if _, err := m.Delete(ctx, other); err != nil {
					t.Fatal(err)
				}
			}
			must(t, c.do(s, m, p))
			for _, x := range []struct {
				*db.Match
				want int
			}{{early, c.restored}, {late, c.late}} {
				if c.err != nil {
					if _, err := x.Restore(ctx, truth.Empty(new(m.Descriptor()), 200)); !errors.Is(err, c.err) {
						t.Errorf("restore: %v, expected %v", err, c.err)
					}
					continue
				}
				n, why := restored(t, m, x.Match)
				if x.want >= 0 && n != x.want || x.want < 0 && n > 0 && n < 200 || n < 200 && why.Code != db.Gone {
					t.Errorf("%d tokens (%v), expected %d", n, why, x.want)
				}
			}
			if c.err == nil {
				if n, why, err := m.Probe(ctx, p, db.MatchOptions{}); n != c.stored || err != nil {
					t.Errorf("others find %d tokens (%v), expected %d, %v", n, why, c.stored, err)
				}
			}
			if c.stored == 0 {
				var pending *db.PendingError
				if err := s.Sync(ctx); !errors.As(err, &pending) || pending.Leases < 2 {
					t.Errorf("sync while matches are open: %v", err)
				}
			}
			must(t, errors.Join(early.Close(), late.Close(), late.Close()))
			must(t, s.Sync(ctx))
			if st, err := s.Stats(); err != nil || st.OpenMatches != 0 || st.PendingBytes != 0 || !st.OldestLease.IsZero() {
				t.Errorf("%d open matches, %d bytes wait, oldest lease %v, %v", st.OpenMatches, st.PendingBytes, st.OldestLease, err)
			}
			verified(t, s)
			noneLeft(t)
		})
	}
}

// Evictions spare what a match rests on, and take it when the match is closed.
func TestLeaseEndsInEviction(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, truth.Plain("lease", 32))
	p := truth.Prompt(truth.Tokens(1, 200))
	put(t, m, p)
	x := match(t, m, p)
	for _, want := range []int{200, 0} {
		if _, err := s.Shrink(ctx, 0); err != nil {
			t.Fatal(err)
		}
		if n, why, err := m.Probe(ctx, p, db.MatchOptions{}); n != want || err != nil {
			t.Errorf("%d tokens (%v), expected %d, %v", n, why, want, err)
		}
		must(t, x.Close())
	}
}

// A match that nobody closes is shown by Stats, keeps the deleted bytes that it can see, and keeps the store from being
// closed, though the garbage collector has taken it; Suspend lets go of everything all the same, and then nothing waits.
func TestLeakedMatch(t *testing.T) {
	dir := t.TempDir()
	s, err := db.Open(ctx, dir, options())
	if err != nil {
		t.Fatal(err)
	}
	m := model(t, s, truth.Plain("lease", 32))
	p := truth.Prompt(truth.Tokens(1, 200))
	put(t, m, p)
	match(t, m, p)
	for range 3 {
		runtime.GC()
	}
	if _, err := m.Delete(ctx, p); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Stats(); err != nil || st.OpenMatches != 1 || st.OldestLease.IsZero() || st.PendingRecords == 0 {
		t.Errorf("%+v, %v", st, err)
	}
	var pending *db.PendingError
	if err := s.Sync(ctx); !errors.As(err, &pending) || pending.Leases != 1 {
		t.Errorf("sync: %v", err)
	}
	if err := s.Close(); !errors.Is(err, db.ErrLeased) {
		t.Errorf("close: %v", err)
	}
	must(t, s.Suspend(ctx))
	again := open(t, dir, options()) // as the next process would
	if n, _, err := model(t, again, truth.Plain("lease", 32)).Probe(ctx, p, db.MatchOptions{}); n != 192 || err != nil {
		t.Errorf("%d tokens, %v", n, err)
	}
	must(t, again.Sync(ctx))
	if st, err := again.Stats(); err != nil || st.PendingRecords != 0 || st.OpenMatches != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	verified(t, again)
}
