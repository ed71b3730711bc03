package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// status says in words what the page says: sums, shares by tokens, since when, and of each request that was helped little why.
func TestRequestsInWords(t *testing.T) {
	var r figures.Recorder
	r.Add(figures.Request{Model: "m", Outcome: figures.Miss, Reason: "nothing_stored", Asked: 7204, Computed: 7204, Prefill: 72040 * time.Millisecond, Endpoint: "/v1/messages", Client: "claude-code", FirstByte: 73 * time.Second})
	r.Add(figures.Request{Model: "m", Outcome: figures.Hit, Reason: "complete", Asked: 7204, Reused: 7203, Computed: 1, Restored: 7203, Endpoint: "/v1/messages", Client: "claude-code"})
	r.Add(figures.Request{
		Model: "m", Outcome: figures.Hit, Reason: "diverged", Asked: 7204, Reused: 312, Computed: 6892, Restored: 312, Endpoint: "/v1/responses", FirstByte: 1234 * time.Millisecond,
		Parted: &figures.Parted{Token: 312, Part: "tools", Common: 312, Age: 2 * time.Hour, Cause: "clock", Advice: "Set NO_CLOCK=1."},
	})
	r.Add(figures.Request{Model: "m", Outcome: figures.Slot, Asked: 9000, Cancelled: true, Endpoint: "/v1/chat/completions"})
	f := r.Read()
	s := llamaserver.Status{
		Asked: f.Asked, Reused: f.Reused, Computed: f.Computed, FromStore: f.FromStore, Unknown: f.Unknown, Saved: f.Saved, Recent: f.Recent, Rates: f.Rates,
		Since: f.Since, SavedEver: 3*time.Hour + 12*time.Minute, EverSince: time.Date(2025, 11, 3, 12, 0, 0, 0, time.UTC),
	}
	for k, n := range f.Requests {
		s.Requests = append(s.Requests, llamaserver.Count{Outcome: k.Outcome.String(), Reason: k.Reason, N: n})
	}
	var out bytes.Buffer
	printRequests(&out, s)
	for _, want := range []string{
		"requests 4 since this start: 2 from the store, 1 not found, 1 cancelled\n",
		"tokens   7,515 of 21,612 reused (35 %): 7,515 from the store, 0 still in the server; 14,097 computed\n",
		"         of 9,000 more, in requests that were cancelled or came to nothing, it is not known\n",
		"saved    3 h 12 min of computing since 3 Nov 2025, 1 min 15 s of it since this start\n",
		"speed    m: 100 tokens of a prompt are computed in a second\n",
		"little reused, of the last 4 requests:\n",
		"/v1/responses  hit: 312 of 7,204 tokens reused, first byte after 1.2 s\n            what is stored goes on differently\n" +
			"            parted at token 312 of 7,204, in the tools, from a prompt of 2 h before\n            Set NO_CLOCK=1.\n",
		"claude-code at /v1/messages  miss: 0 of 7,204 tokens reused, first byte after 1 min 13 s\n            nothing stored begins like this prompt\n",
		"/v1/chat/completions  cancelled: of 9,000 tokens it is not known how many were reused\n            the client left before the end of its answer\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("status lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
	out.Reset()
	if printRequests(&out, llamaserver.Status{}); out.Len() != 0 {
		t.Errorf("of nothing status says %q", out.String())
	}
}
