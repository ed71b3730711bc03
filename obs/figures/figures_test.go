package figures

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Every reason of a store has a code that may be a label, and words.
func TestReasonsHaveWords(t *testing.T) {
	seen := map[string]bool{}
	for c := range kv.ReasonCode(kv.ReasonCodes) {
		code := Code(c)
		if clean(code) != code || seen[code] || words[code] == "" {
			t.Errorf("%v has the code %q and the words %q", c, code, words[code])
		}
		seen[code] = true
	}
	for code, w := range words {
		if clean(code) != code || w == "" {
			t.Errorf("the code %q", code)
		}
	}
}

// So has every reason for which the front before llama-server passes a request through, and there are no others.
func TestReasonsOfTheFrontHaveWords(t *testing.T) {
	b, err := os.ReadFile("../../runtimes/llamaserver/internal/request/pass.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`Pass = "(.*)"`).FindAllStringSubmatch(string(b), -1)
	known := map[string]bool{Other: true, ServerCache: true, TooFew: true, NotChosen: true, TooSlow: true, NotReused: true, SlotTaken: true, RestoreFailed: true, LookupFailed: true,
		ClientLeft: true, NotAnswered: true}
	for c := range kv.ReasonCode(kv.ReasonCodes) {
		known[Code(c)] = true
	}
	for _, m := range found {
		known[m[1]] = true
		if words[m[1]] == "" {
			t.Errorf("the reason %q has no words", m[1])
		}
	}
	for code := range words {
		if !known[code] {
			t.Errorf("nobody gives the reason %q", code)
		}
	}
	if len(found) < 10 {
		t.Errorf("%d reasons", len(found))
	}
}

// What is no code gets in nowhere.
func TestTextIsNoReason(t *testing.T) {
	var r Recorder
	for _, text := range []string{"", "Hello", "tell me a secret", "<b>", "a\nb", "größe", strings.Repeat("a", 41), "a\"b"} {
		r.Add(Request{Reason: text})
	}
	f := r.Read()
	if len(f.Requests) != 1 || f.Requests[Kind{Pass, Other}] != 8 {
		t.Errorf("%v", f.Requests)
	}
	for _, q := range f.Recent {
		if q.Reason != Other {
			t.Errorf("the reason %q is kept", q.Reason)
		}
	}
}

// Types of parts are words, or nothing.
func TestTypesAreWords(t *testing.T) {
	for types, want := range map[string]string{"web_search": "tools that are no functions", "web_search,x-1.2": "(web_search,x-1.2)", "Tell me": "", "a b": "", strings.Repeat("a", 141): ""} {
		var r Recorder
		r.Add(Request{Reason: "tools", Types: types})
		q := r.Read().Recent[0]
		if (want == "") != (q.Types == "") || !strings.Contains(q.Why(), want) {
			t.Errorf("%q: %q, %q", types, q.Types, q.Why())
		}
	}
}

// Memory is bounded, and nothing is lost of the sums.
func TestRecorderIsBounded(t *testing.T) {
	var r Recorder
	for i := range 5000 {
		r.Add(Request{
			Model: fmt.Sprint("model", i), Outcome: Outcome(i % 4), Reason: fmt.Sprint("reason_", i), Asked: 100, Reused: 60, Computed: 40, Restored: 60,
			Prefill: time.Second,
		})
	}
	r.Add(Request{Model: strings.Repeat("ä", 1000), Asked: -5, Lookup: -time.Hour})
	f := r.Read()
	if len(f.Requests) > maxKinds+4 || len(f.Rates) > maxModels || len(f.Recent) != RecentRequests || len(f.Series.Points) > maxPoints {
		t.Errorf("%d kinds, %d rates, %d requests, %d points", len(f.Requests), len(f.Rates), len(f.Recent), len(f.Series.Points))
	}
	if n := f.Count(Hit) + f.Count(Slot) + f.Count(Miss) + f.Count(Pass); n != 5001 || f.Total() != n || f.Asked != 500_000 || f.Reused != 300_000 || f.Computed != 200_000 || f.Lookup != 0 {
		t.Errorf("%d requests, %+v", n, f)
	}
	if m := f.Recent[0].Model; len(m) > maxName+3 || !strings.HasPrefix(m, "ää") || f.Recent[1].Model != "model4999" {
		t.Errorf("the last models are %q, %q", m, f.Recent[1].Model)
	}
}

// Whatever requests say: each is counted once, tokens asked are those reused and computed, and who left before the end had no hit.
func TestSumsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Recorder
		n := rapid.IntRange(0, 200).Draw(t, "requests")
		cancelled, unknown := int64(0), int64(0)
		for range n {
			tokens := rapid.IntRange(-5, 9000)
			q := Request{
				Outcome: Outcome(rapid.IntRange(0, 6).Draw(t, "outcome")), Reason: rapid.SampledFrom([]string{"complete", "diverged", "media", "Text of a user", ""}).Draw(t, "reason"),
				Asked: tokens.Draw(t, "asked"), Cancelled: rapid.Bool().Draw(t, "cancelled"), Restored: tokens.Draw(t, "restored"), Unused: tokens.Draw(t, "unused"), Prefill: time.Second,
			}
			if rapid.Bool().Draw(t, "the server tells") {
				q.Reused, q.Computed = tokens.Draw(t, "reused"), tokens.Draw(t, "computed")
			}
			got := r.Add(q)
			if got.Cancelled {
				cancelled++
			}
			if !got.Known() {
				unknown += int64(got.Asked)
			}
			if got.Cancelled != (got.Outcome == Cancelled) || q.Cancelled && !got.Cancelled || got.FromStore() > got.Reused {
				t.Fatalf("%+v became %+v", q, got)
			}
		}
		f := r.Read()
		sum := int64(0)
		for _, o := range Outcomes {
			reasons := int64(0)
			for k, c := range f.Requests {
				if k.Outcome == o {
					reasons += c
				}
			}
			if f.Count(o) != reasons {
				t.Fatalf("%v: %d, by reason %d", o, f.Count(o), reasons)
			}
			sum += reasons
		}
		var p Point
		for _, x := range f.Series.Points {
			p.add(x)
		}
		switch {
		case sum != int64(n), f.Total() != sum, p.Hits+p.Slots+p.Misses+p.Passed+p.Cancelled != sum:
			t.Fatalf("%d requests, counted as %d, %d, %+v", n, sum, f.Total(), p)
		case f.Asked != f.Reused+f.Computed, p.Asked != f.Asked, p.Reused != f.Reused, p.Computed != f.Computed, f.FromStore > f.Reused, f.Unknown != unknown:
			t.Fatalf("%+v, %+v, unknown %d", f, p, unknown)
		case f.Count(Cancelled) != cancelled:
			t.Fatalf("%d of %d are cancelled", f.Count(Cancelled), cancelled)
		}
	})
}

// Of a request nothing is kept but what may be shown: no path of a user's, no words of a client's own.
func TestNothingOfTheRequestIsKept(t *testing.T) {
	var r Recorder
	secret := "Hello, I am Ada"
	got := r.Add(Request{
		Endpoint: "/v1/messages", Client: "claude-code", Asked: 5, Cancelled: true, FirstByte: -1,
		Parted: &Parted{Token: -1, Part: "message 3", Cause: "clock", Advice: "Set this."},
	})
	if got.Endpoint != "/v1/messages" || got.Client != "claude-code" || got.FirstByte != 0 || *got.Parted != (Parted{Part: "message 3", Cause: "clock", Advice: "Set this."}) {
		t.Errorf("%+v, %+v", got, got.Parted)
	}
	long := strings.Repeat("a", 5000)
	for _, text := range []string{secret, long, "<b>", "a\x00"} {
		got = r.Add(Request{Endpoint: text, Client: text, Parted: &Parted{Part: text, Cause: text, Advice: long}})
		if got.Endpoint != "" || got.Client != "" || got.Parted.Part != "" || got.Parted.Cause != Other || len(got.Parted.Advice) > maxAdvice {
			t.Errorf("%+v, %+v", got, got.Parted)
		}
	}
}

// Seconds saved are those that the measured rate would have taken, less what it cost, and never fewer than none.
func TestSaved(t *testing.T) {
	var r Recorder
	last := func(q Request) time.Duration {
		r.Add(q)
		return r.Read().Recent[0].Saved
	}
	if d := last(Request{Model: "m", Outcome: Hit, Reused: 1000, Restored: 1000, Computed: 10, Prefill: time.Second}); d != 0 {
		t.Errorf("%v were saved before a rate was known", d)
	}
	r.Add(Request{Model: "m", Outcome: Miss, Computed: 500, Prefill: 5 * time.Second}) // 100 tokens a second
	for _, c := range []struct {
		q    Request
		want time.Duration
	}{
		{Request{Model: "m", Reused: 1000, Restored: 1000, Lookup: time.Second, Restore: 2 * time.Second}, 7 * time.Second},
		{Request{Model: "m", Reused: 400, Restored: 1000, Unused: 600}, 4 * time.Second},
		{Request{Model: "m", Reused: 10, Restored: 1000, Unused: 1000}, 0},
		{Request{Model: "m", Reused: 10, Restored: 10, Restore: time.Second}, 0},
		{Request{Model: "m", Reused: 1000}, 0}, // the server had them
		{Request{Model: "another", Reused: 1000, Restored: 1000}, 0},
		{Request{Model: "m", Restored: 1000, Asked: 1000}, 0}, // nobody says whether they were used
		{Request{Model: "m", Restored: 1000, Asked: 1000, Cancelled: true}, 0},
	} {
		if d := last(c.q); d != c.want {
			t.Errorf("%+v saved %v, expected %v", c.q, d, c.want)
		}
	}
	if f := r.Read(); f.Saved != 11*time.Second || len(f.Rates) != 1 || f.Rates[0].PerSecond != 100 {
		t.Errorf("%v in all, rates %v", f.Saved, f.Rates)
	}
}

// The series covers all there was, in at most 240 points, up to now, or the last 42 hours.
func TestSeries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pauses := rapid.SliceOfN(rapid.Int64Range(0, 40_000), 1, 60).Draw(t, "seconds between requests")
		var s series
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		now, times := start, []time.Time{}
		for _, p := range pauses {
			now = now.Add(time.Duration(p) * time.Second)
			times = append(times, now)
			s.at(now).add(Point{Hits: 1, Asked: 7, Saved: time.Second})
		}
		got := s.read(now)
		if len(got.Points) > maxPoints || len(got.Points) == 0 {
			t.Fatalf("%d points", len(got.Points))
		}
		end := got.Start.Add(time.Duration(len(got.Points)) * got.Width)
		if !end.After(now) || end.Add(-got.Width).After(now) {
			t.Errorf("the series ends at %v, now is %v", end, now)
		}
		want := int64(0)
		for _, x := range times {
			if !x.Before(got.Start) {
				want++
			}
		}
		var sum Point
		for _, p := range got.Points {
			sum.add(p)
		}
		if sum.Hits != want || sum.Asked != 7*want || sum.Saved != time.Duration(want)*time.Second {
			t.Errorf("%+v, expected %d since %v", sum, want, got.Start)
		}
		if now.Sub(start) < 42*time.Hour && want != int64(len(times)) {
			t.Errorf("%d of %d requests are forgotten after %v", int64(len(times))-want, len(times), now.Sub(start))
		}
	})
}

// A request from before the first one, or one whose clock ran ahead, counts.
func TestTimesOutOfOrder(t *testing.T) { synctest.Test(t, testTimesOutOfOrder) }

func testTimesOutOfOrder(t *testing.T) {
	var r Recorder
	for _, d := range []time.Duration{0, -time.Hour, time.Hour, 1000 * time.Hour} {
		r.Add(Request{Ended: time.Now().Add(d), Outcome: Hit})
	}
	sum := func() (n int64) {
		for _, p := range r.Read().Series.Points {
			n += p.Hits
		}
		return n
	}
	if n := sum(); n != 4 {
		t.Errorf("%d of 4 requests are in the series", n)
	}
	time.Sleep(100 * time.Hour)
	if n := sum(); n != 0 {
		t.Errorf("%d requests of four days ago are in the series", n)
	}
	if n := len(r.Read().Series.Points); n > maxPoints {
		t.Errorf("%d points", n)
	}
}

// A runtime's observations become requests.
func TestObserve(t *testing.T) {
	var r Recorder
	r.Observe(db.Observation{Asked: 100, Prefilled: 100, Prefill: time.Second, Reason: db.Reason{Code: db.NothingStored}})
	r.Observe(db.Observation{Asked: 100, Found: 90, Loaded: 90, Reused: 90, Prefilled: 10, Reason: db.Reason{Code: db.Ends, At: 90}})
	r.Observe(db.Observation{Asked: 100, Found: 60, Reused: 80, Prefilled: 20, Reason: db.Reason{Code: db.Ends, At: 60}})
	r.Observe(db.Observation{Asked: 100, Prefilled: 100, Reason: db.Reason{Code: db.LookupOff}})
	r.Observe(db.Observation{Asked: 100, Prefilled: 100})
	want := map[Kind]int64{{Miss, "nothing_stored"}: 1, {Hit, "stored_prefix_ends"}: 1, {Slot, "stored_prefix_ends"}: 1, {Pass, "lookup_off"}: 1, {Pass, "no_reason"}: 1}
	f := r.Read()
	if fmt.Sprint(f.Requests) != fmt.Sprint(want) || f.Asked != 500 || f.Reused != 170 || f.FromStore != 90 || f.Computed != 330 || f.Saved != 900*time.Millisecond {
		t.Errorf("%+v", f)
	}
}

// Many add while others read.
func TestTogether(t *testing.T) {
	var r Recorder
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 500 {
				r.Add(Request{Model: fmt.Sprint(g), Outcome: Hit, Reason: "complete", Asked: 1, Reused: 1})
				if i%50 == 0 {
					r.Read()
				}
			}
		})
	}
	all.Wait()
	if f := r.Read(); f.Asked != 4000 || f.Count(Hit) != 4000 {
		t.Errorf("%d asked, %d hits", f.Asked, f.Count(Hit))
	}
}
