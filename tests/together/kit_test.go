package together

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/tests/together/truth"
)

var ctx = context.Background()

func options() db.Options {
	return db.Options{
		Budget: 1 << 30, MinFree: -1, CheckpointInterval: -1, Codec: quant.Raw, SegmentBytes: 1 << 20,
		Logger: slog.New(slog.DiscardHandler),
	}
}

// lasts is how long a test runs: d, unless DORMOUSE_TOGETHER says otherwise.
func lasts(t testing.TB, d time.Duration) time.Duration {
	v := os.Getenv("DORMOUSE_TOGETHER")
	if v == "" {
		return d
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("DORMOUSE_TOGETHER: %v", err)
	}
	return d
}

// seed is where a test begins: at random, unless DORMOUSE_TOGETHER_SEED says otherwise.
func seed(t testing.TB) uint64 {
	s := uint64(time.Now().UnixNano()) % 1e9
	if v := os.Getenv("DORMOUSE_TOGETHER_SEED"); v != "" {
		var err error
		if s, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("DORMOUSE_TOGETHER_SEED: %v", err)
		}
	}
	t.Logf("DORMOUSE_TOGETHER_SEED=%d", s)
	return s
}

func open(t testing.TB, dir string, o db.Options) *db.Store {
	t.Helper()
	s, err := db.Open(ctx, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && err != db.ErrClosed {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func model(t testing.TB, s *db.Store, d kv.Descriptor) *db.Model {
	t.Helper()
	m, err := s.Register(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	return m.Model
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, m *db.Model, p kv.Prompt) {
	t.Helper()
	d := m.Descriptor()
	if res, err := m.Put(ctx, p, truth.Filled(&d, &p, 0, len(p.Tokens)), db.PutOptions{}); err != nil || res.Tokens != len(p.Tokens) {
		t.Fatalf("put of %d tokens: %+v, %v", len(p.Tokens), res, err)
	}
}

func match(t testing.TB, m *db.Model, p kv.Prompt) *db.Match {
	t.Helper()
	x, err := m.Match(ctx, p, db.MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// restored restores a match, compares every row with the truth, and returns how far it came and why not farther.
func restored(t testing.TB, m *db.Model, x *db.Match) (int, db.Reason) {
	t.Helper()
	d, p := m.Descriptor(), x.Prompt()
	rows := truth.Empty(&d, len(p.Tokens))
	got, err := x.Restore(ctx, rows)
	if err != nil {
		t.Fatal(err)
	}
	if err := truth.Check(&d, &p, rows, got.Tokens); err != nil {
		t.Fatal(err)
	}
	return got.Tokens, got.Reason
}

// verified closes a store and looks at every byte of it.
func verified(t testing.TB, s *db.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	r, err := admin.Verify(ctx, s.Dir(), admin.VerifyOptions{})
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	for i, d := range r.Damage {
		if t.Error(d); i > 10 {
			break
		}
	}
}
