package obs_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs"
	"github.com/dormousekv/dormouse/obs/figures"
)

func desc(name string) kv.Descriptor {
	d := kv.Descriptor{
		Name: name, Weights: kv.HashOf(name), Architecture: "test", Tokenizer: kv.HashOf("test"), RoPE: kv.RoPE{Type: kv.NoRoPE}, BlockTokens: 16,
	}
	for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
		d.Tensors = append(d.Tensors, kv.Tensor{Role: role, DType: kv.F16, Width: 32})
	}
	return d
}

func open(t *testing.T) *db.Store {
	t.Helper()
	s, err := db.Open(t.Context(), t.TempDir(), db.Options{Budget: 64 << 20, MinFree: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func model(t *testing.T, s *db.Store, name string) *db.Model {
	t.Helper()
	m, err := s.Register(t.Context(), desc(name))
	if err != nil {
		t.Fatal(err)
	}
	return m.Model
}

// turn looks p up, restores what there is, and stores all.
func turn(t *testing.T, m *db.Model, p kv.Prompt) {
	t.Helper()
	x, err := m.Match(t.Context(), p, db.MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	rows := make(kv.Rows, 2)
	for i := range rows {
		rows[i] = kv.Packed(0, len(p.Tokens), bytes.Repeat([]byte{byte(i + 1), 0x3c}, len(p.Tokens)*32))
	}
	got, err := x.Restore(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Extend(t.Context(), p, rows, db.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	m.Observe(db.Observation{
		Asked: len(p.Tokens), Found: got.Tokens, Loaded: got.Tokens, Reused: got.Tokens, Prefilled: len(p.Tokens) - got.Tokens, Lookup: time.Millisecond,
		Load: time.Millisecond, Prefill: time.Duration(len(p.Tokens)-got.Tokens) * 10 * time.Millisecond, Reason: got.Reason,
	})
}

func tokens(seed, n int) (out []kv.Token) {
	for i := range n {
		out = append(out, kv.Token(seed*1000+i))
	}
	return out
}

// used is a store that was talked to: models with names that are no names, scopes, and evictions.
func used(t *testing.T) (s *db.Store, rec *figures.Recorder) {
	t.Helper()
	rec = &figures.Recorder{}
	s, err := db.Open(t.Context(), t.TempDir(), db.Options{Budget: 64 << 20, MinFree: -1, Observer: rec.Observe, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	turn(t, model(t, s, "gone"), kv.Prompt{Tokens: tokens(1, 64)})
	if _, err := s.Shrink(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gemma", "\xff\xfe{model=\"x\"}\n# HELP", strings.Repeat("long", 100)} {
		m := model(t, s, name)
		turn(t, m, kv.Prompt{Tokens: tokens(2, 64)})
		for c := range 14 {
			turn(t, m, kv.Prompt{Tokens: append(tokens(2, 64), tokens(3+c, 16*(c+1))...), Scope: fmt.Sprint("anna", c), ScopeStart: 64})
		}
	}
	return s, rec
}

// gathered is what a scrape gives: values by name and labels. Of a histogram there is the count, and with " sum" behind its name the sum.
func gathered(t *testing.T, o obs.Options) (values map[string]float64, names map[string]bool) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(obs.New(o))
	if bad, err := testutil.GatherAndLint(r); err != nil || len(bad) > 0 {
		t.Errorf("lint: %+v, %v", bad, err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values, names = map[string]float64{}, map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetName() + "=" + l.GetValue()
			}
			switch {
			case m.GetCounter() != nil:
				values[key] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				values[key] = m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				values[key] = float64(m.GetHistogram().GetSampleCount())
				values[key+" sum"] = m.GetHistogram().GetSampleSum()
				last := uint64(0)
				for _, b := range m.GetHistogram().GetBucket() {
					if b.GetCumulativeCount() < last || b.GetCumulativeCount() > m.GetHistogram().GetSampleCount() {
						t.Errorf("%s: a bucket of %d behind %d, of %d", key, b.GetCumulativeCount(), last, m.GetHistogram().GetSampleCount())
					}
					last = b.GetCumulativeCount()
				}
			}
		}
	}
	return values, names
}
