package obs_test

import (
	"fmt"
	"io"
	"maps"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs"
)

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
