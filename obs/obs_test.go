package obs_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs"
	"github.com/dormousekv/dormouse/obs/figures"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md anew")

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

// Ages of evicted blocks may come to more than a time.Duration holds: then Sum stops there, and seconds go on.
func TestSumOfAges(t *testing.T) { synctest.Test(t, testSumOfAges) }

func testSumOfAges(t *testing.T) {
	s := open(t)
	defer s.Close()
	turn(t, model(t, s, "old"), kv.Prompt{Tokens: tokens(1, 64)})
	if err := s.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	const century = 36525 * 24 * time.Hour
	time.Sleep(century)
	if err := s.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Shrink(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if age := st.EvictedAge; age.N != 4 || age.Sum != math.MaxInt64 || age.Seconds != 4*century.Seconds() {
		t.Errorf("ages of %d blocks: %v, %v s; expected 4, %v, %v s", age.N, age.Sum, age.Seconds, time.Duration(math.MaxInt64), 4*century.Seconds())
	}
	got, _ := gathered(t, obs.Options{Store: func() *db.Store { return s }})
	if sum := got["dormouse_store_eviction_age_seconds sum"]; sum != 4*century.Seconds() {
		t.Errorf("the metric's sum is %v", sum)
	}
}

// What is scraped is what Stats and the recorder say, and all metrics are there.
func TestMetricsEqualStats(t *testing.T) {
	s, rec := used(t)
	front := func() obs.Front {
		f := rec.Read()
		f.Slots, f.Busy, f.Restarts = 4, 2, 3
		return f
	}
	got, names := gathered(t, obs.Options{Store: func() *db.Store { return s }, Front: front})
	for _, m := range obs.Metrics() {
		if !names[m.Name] {
			t.Errorf("%s is missing", m.Name)
		}
	}
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	f := front()
	for name, want := range map[string]float64{
		"dormouse_store_open":                                1,
		"dormouse_store_hits_total":                          float64(st.Hits),
		"dormouse_store_matches_total reason=complete":       float64(st.Reasons[db.Complete]),
		"dormouse_store_matches_total reason=nothing_stored": float64(st.Reasons[db.NothingStored]),
		"dormouse_store_tokens_asked_total":                  float64(st.TokensAsked),
		"dormouse_store_tokens_reused_total":                 float64(st.TokensReused),
		"dormouse_store_lookup_seconds":                      float64(st.Lookup.N),
		"dormouse_store_put_seconds":                         float64(st.Puts),
		"dormouse_store_blocks":                              float64(st.Blocks),
		"dormouse_store_live_bytes":                          float64(st.LiveBytes),
		"dormouse_store_budget_bytes":                        64 << 20,
		"dormouse_store_evicted_blocks_total":                float64(st.Evicted),
		"dormouse_store_eviction_age_seconds":                float64(st.Evicted),
		"dormouse_turns_total":                               float64(st.Turns.Observed),
		"dormouse_turn_tokens_total kind=reused":             float64(f.Reused),
		"dormouse_turn_seconds_total stage=prefill":          st.Turns.Prefill.Seconds(),
		"dormouse_front_tokens_asked_total":                  float64(st.Turns.Asked),
		"dormouse_front_tokens_reused_total":                 float64(st.Turns.Reused),
		"dormouse_front_tokens_computed_total":               float64(st.Turns.Prefilled),
		"dormouse_front_tokens_restored_total":               float64(st.TokensReused),
		"dormouse_front_saved_seconds_total":                 f.Saved.Seconds(),
		"dormouse_front_slots":                               4,
		"dormouse_front_slots_busy":                          2,
		"dormouse_front_server_restarts_total":               3,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (%t), expected %v", name, v, ok, want)
		}
	}
	if st.Evicted == 0 || st.Hits == 0 || f.Saved == 0 {
		t.Errorf("too little happened: %+v", st)
	}
	sums := map[string]float64{}
	for key, v := range got {
		name, _, _ := strings.Cut(key, " ")
		sums[name] += v
		if strings.Contains(key, "anna") {
			t.Errorf("a scope's name is in %s", key)
		}
	}
	for name, want := range map[string]int64{
		"dormouse_store_matches_total": st.Matches, "dormouse_store_model_bytes": st.LiveBytes, "dormouse_store_scope_bytes": st.LiveBytes,
		"dormouse_store_model_blocks": st.Blocks, "dormouse_front_requests_total": st.Turns.Observed,
	} {
		if sums[name] != float64(want) {
			t.Errorf("%s is %v in all, expected %d", name, sums[name], want)
		}
	}
}

// However many models and scopes there are, the series are few, and add up.
func TestSeriesAreBounded(t *testing.T) {
	s := open(t)
	for i := range 60 {
		m := model(t, s, fmt.Sprint("model", i))
		for c := range 1 + i%3*20 {
			turn(t, m, kv.Prompt{Tokens: tokens(c, 16), Scope: fmt.Sprint(c)})
		}
	}
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for scopes, most := range map[int]int{0: 25 * 12, -1: 25 * 2, -5: 25 * 2, 3: 25 * 5, 1000: 25 * 22} {
		got, _ := gathered(t, obs.Options{Store: func() *db.Store { return s }, Scopes: scopes})
		count, sum := map[string]int{}, map[string]float64{}
		for key, v := range got {
			name, _, _ := strings.Cut(key, " ")
			count[name]++
			sum[name] += v
		}
		if n := count["dormouse_store_scope_bytes"]; n > most {
			t.Errorf("Scopes %d: %d series, expected at most %d", scopes, n, most)
		}
		if n := count["dormouse_store_model_bytes"]; n != 25 {
			t.Errorf("%d models have a series, expected 24 and other", n)
		}
		for _, name := range []string{"dormouse_store_scope_bytes", "dormouse_store_model_bytes"} {
			if sum[name] != float64(st.LiveBytes) {
				t.Errorf("Scopes %d: %s are %v in all, expected %d", scopes, name, sum[name], st.LiveBytes)
			}
		}
	}
}

// Without a store, or while it is suspended, a scrape says just that.
func TestNoStore(t *testing.T) {
	s := open(t)
	if err := s.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]obs.Options{
		"none": {}, "none just now": {Store: func() *db.Store { return nil }}, "suspended": {Store: func() *db.Store { return s }},
	} {
		got, _ := gathered(t, o)
		if want := map[string]float64{"dormouse_store_open": 0}; !maps.Equal(got, want) {
			t.Errorf("%s: %v, expected %v", name, got, want)
		}
	}
	got, names := gathered(t, obs.Options{Front: func() obs.Front { return obs.Front{} }})
	if !names["dormouse_front_slots"] || got["dormouse_store_open"] != 0 {
		t.Errorf("a front without a store: %v", got)
	}
}

// Handler serves the text format.
func TestHandler(t *testing.T) {
	s, rec := used(t)
	server := httptest.NewServer(obs.Handler(obs.Options{Store: func() *db.Store { return s }, Front: rec.Read}))
	defer server.Close()
	res, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res.Status, err)
	}
	if bad, err := testutil.CollectAndLint(obs.New(obs.Options{Store: func() *db.Store { return s }, Front: rec.Read})); err != nil || len(bad) > 0 {
		t.Errorf("%+v, %v", bad, err)
	}
	for _, part := range []string{"# TYPE dormouse_store_lookup_seconds histogram", "dormouse_store_open 1\n", `model="gemma"`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("no %q in what is served", part)
		}
	}
}

// docs/metrics.md has a row for each metric, in this order, and no other.
func TestDocs(t *testing.T) {
	const file = "../docs/metrics.md"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, table, found := strings.Cut(string(b), "| --- | --- | --- | --- |\n")
	if !found {
		t.Fatalf("%s has no table", file)
	}
	var want strings.Builder
	for _, m := range obs.Metrics() {
		labels := "-"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, labels, m.Help)
	}
	if *update {
		if err := os.WriteFile(file, []byte(head+"| --- | --- | --- | --- |\n"+want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != want.String() {
		t.Errorf("%s has\n%s\nexpected (go test ./obs -run TestDocs -update)\n%s", file, table, want.String())
	}
}

// The Go code in the docs is in the example, which compiles.
func TestCodeInDocs(t *testing.T) {
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, file := range []string{"../docs/metrics.md", "../docs/operations.md"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(b), -1) {
			if !strings.Contains(code[1], "obs.") && !strings.Contains(code[1], "page.") {
				continue
			}
			for line := range strings.Lines(code[1]) {
				lines++
				if line = strings.TrimSpace(line); !strings.Contains(string(example), line+"\n") {
					t.Errorf("%s: the example lacks %q", file, line)
				}
			}
		}
	}
	if lines < 6 {
		t.Errorf("%d lines of code", lines)
	}
}

// Every query of the dashboard asks for metrics and labels that there are; what should be looked at is on it.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Templating struct {
			List []struct{ Query any }
		}
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	known := map[string][]string{}
	for _, m := range obs.Metrics() {
		known[m.Name] = append(m.Labels, "instance")
		if m.Kind == "histogram" {
			for _, end := range []string{"_bucket", "_sum", "_count"} {
				known[m.Name+end] = []string{"le", "instance"}
			}
			delete(known, m.Name)
		}
	}
	name := regexp.MustCompile(`dormouse_\w+`)
	label := regexp.MustCompile(`by \(([^)]*)\)|[{,](\w+)=`)
	shown := map[string]bool{}
	queries := 0
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			queries++
			metrics := name.FindAllString(q.Expr, -1)
			if len(metrics) == 0 {
				t.Errorf("%s: %s asks for nothing of ours", p.Title, q.Expr)
			}
			for _, m := range metrics {
				if known[m] == nil {
					t.Errorf("%s: there is no metric %s", p.Title, m)
				}
				shown[m] = true
				for _, found := range label.FindAllStringSubmatch(q.Expr, -1) {
					for _, l := range strings.Split(found[1]+found[2], ",") {
						if l = strings.TrimSpace(l); !slices.Contains(known[m], l) {
							t.Errorf("%s: %s has no label %q", p.Title, m, l)
						}
					}
				}
			}
		}
	}
	for _, v := range board.Templating.List {
		for _, m := range name.FindAllString(fmt.Sprint(v.Query), -1) {
			if known[m] == nil {
				t.Errorf("a variable asks for %s", m)
			}
		}
	}
	for _, m := range []string{
		"dormouse_front_requests_total", "dormouse_front_tokens_unused_total", "dormouse_front_saved_seconds_total", "dormouse_store_model_bytes",
		"dormouse_store_scope_bytes", "dormouse_store_evicted_blocks_total", "dormouse_store_eviction_age_seconds_bucket", "dormouse_store_budget_bytes",
	} {
		if !shown[m] {
			t.Errorf("%s is on no panel", m)
		}
	}
	if queries < 30 {
		t.Errorf("%d queries", queries)
	}
}
