package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// asked is a request of a client as the front counts it.
type asked struct {
	client        string
	tokens, reuse int
	cause         string // "?": it parted, and nobody knows why
	part          string
}

// watchedText is what is said of some requests, a line each.
func watchedText(list ...asked) string {
	w := newWatched(nil)
	at := time.Now()
	var recent []figures.Request
	var out strings.Builder
	for _, a := range list {
		at = at.Add(time.Second)
		q := figures.Request{Ended: at, Client: a.client, Endpoint: "/v1/messages", Outcome: figures.Hit, Asked: a.tokens, Reused: a.reuse, Computed: a.tokens - a.reuse}
		switch {
		case a.tokens < 0:
			q.Outcome, q.Cancelled, q.Asked, q.Computed = figures.Cancelled, true, 0, 0
		case a.tokens == 0:
			q.Outcome, q.Reason = figures.Pass, "media"
		case a.cause == "?":
			q.Parted = &figures.Parted{Token: a.reuse, Common: a.reuse, Part: a.part}
		case a.cause != "":
			q.Parted = &figures.Parted{Token: a.reuse, Common: a.reuse, Part: a.part, Cause: a.cause, Advice: "set " + a.cause}
		}
		recent = slices.Insert(recent, 0, q)
		for _, x := range w.news(recent) {
			out.WriteString(x.Text + "\n")
		}
	}
	return out.String()
}

// After three requests of a client it is said what to set, once for each cause.
func TestWatchSaysOnceWhatToSet(t *testing.T) {
	header := asked{"claude-code", 18_874, 31, "billing_header", "system prompt"}
	folder := asked{"claude-code", 18_874, 600, "working_directory", "system prompt"}
	well := asked{"claude-code", 18_874, 18_700, "", ""}
	const says = "Claude Code: set billing_header (parted at token 31 of 18,874, in the system prompt)\n"
	if got := watchedText(header, header); got != "" {
		t.Errorf("after two requests: %q", got)
	}
	if got := watchedText(header, header, header, header, header); got != says {
		t.Errorf("%q", got)
	}
	got := watchedText(header, well, folder, well, well, well, well)
	want := says + "Claude Code: set working_directory (parted at token 600 of 18,874, in the system prompt)\n" +
		"Claude Code: >99 % of the 56,622 tokens of its last 3 requests were not computed; nothing is to be set\n"
	if got != want {
		t.Errorf("%q, expected %q", got, want)
	}
}

// It is said that all is well, and again when it has become so again.
func TestWatchSaysThatAllIsWell(t *testing.T) {
	cold, well := asked{client: "opencode", tokens: 7204}, asked{client: "opencode", tokens: 7204, reuse: 7100}
	const says = "opencode: 99 % of the 21,612 tokens of its last 3 requests were not computed; nothing is to be set\n"
	if got := watchedText(cold, well, well); got != "" {
		t.Errorf("the first one was computed: %q", got)
	}
	if got := watchedText(cold, well, well, well, well, well, cold, well, well, well); got != says+says {
		t.Errorf("%q", got)
	}
}

// Clients are told apart.
func TestWatchTellsClientsApart(t *testing.T) {
	a, b := asked{"pi", 1400, 560, "clock", "system prompt"}, asked{"", 1400, 1390, "", ""}
	if got := watchedText(a, b, a, b); got != "" {
		t.Errorf("%q", got)
	}
	got := watchedText(a, b, a, b, b, a)
	if want := "a program without a known name: >99 % of the 4,200 tokens of its last 3 requests were not computed; nothing is to be set\npi: set clock (parted at token 560 of 1,400, in the system prompt)\n"; got != want {
		t.Errorf("%q, expected %q", got, want)
	}
}

// What nobody knows the cause of is said, and that requests pass.
func TestWatchSaysWhatItDoesNotKnow(t *testing.T) {
	x, pass := asked{"codex", 6231, 900, "?", "tools"}, asked{client: "codex"}
	if got := watchedText(x, x, x, x); got != "Codex: 900 of 6,231 tokens were reused: it parted at token 900 of 6,231, in the tools; why is not known: dormouse explain shows the text on both sides, of a serve that was started with --explain\n" {
		t.Errorf("%q", got)
	}
	first := asked{"codex", 6231, 3, "other_system_prompt", "system prompt"}
	if got := watchedText(first, pass, pass); got != "" {
		t.Errorf("the first one of a program: %q", got)
	}
	y := asked{"codex", 6231, 3, "?", "system prompt"}
	if got := watchedText(y, pass, pass); got != "" {
		t.Errorf("parted once: %q", got)
	}
	if got := watchedText(pass, x, x, pass, pass); got != "Codex: 900 of 6,231 tokens were reused: it parted at token 900 of 6,231, in the tools; why is not known: dormouse explain shows the text on both sides, of a serve that was started with --explain\n" {
		t.Errorf("%q", got)
	}
	left := asked{client: "codex", tokens: -1}
	if got := watchedText(left, pass, left, pass, left, pass, pass); got != "Codex: nothing is kept of its requests at /v1/messages: "+figures.Words("media")+"\n" {
		t.Errorf("%q", got)
	}
}

// What was asked before the watch is not looked at.
func TestWatchBeginsNow(t *testing.T) {
	old := []figures.Request{{Ended: time.Now(), Client: "pi"}, {Ended: time.Now().Add(-time.Second), Client: "pi"}, {Ended: time.Now().Add(-2 * time.Second), Client: "pi"}}
	w := newWatched(old)
	if out := w.news(old); len(out) > 0 || len(w.clients) > 0 {
		t.Errorf("%+v", out)
	}
}

// The command follows a front over its socket, also one that was started again, and ends by itself or with Ctrl-C.
func TestWatchFollowsAFront(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir := t.TempDir()
	var n atomic.Int64
	serve := func() *http.Server {
		l, err := net.Listen("unix", socketPaths(dir)[0])
		if err != nil {
			t.Skip("SKIPPED: no sockets in files here: ", err)
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q := figures.Request{Ended: time.Now(), Client: "claude-code", Outcome: figures.Slot, Asked: 1000, Reused: 31, Computed: 969,
				Parted: &figures.Parted{Token: 31, Common: 31, Part: "system prompt", Cause: "billing_header", Advice: "set it"}}
			if n.Add(1) == 1 { // what was asked before
				q.Client = "old"
			}
			answer(w, llamaserver.Status{Recent: []figures.Request{q}}, nil)
		})}
		go s.Serve(l)
		return s
	}
	if code := run(t.Context(), []string{"doctor", "--watch", "--store", dir}, &bytes.Buffer{}, &bytes.Buffer{}); code != 1 {
		t.Errorf("without a front: exit code %d", code)
	}
	for _, wrong := range []string{"--watch --store X -- llama-server", "--json", "--watch --for -1s"} {
		if code := run(t.Context(), append([]string{"doctor"}, strings.Fields(wrong)...), &bytes.Buffer{}, &bytes.Buffer{}); code != 2 {
			t.Errorf("doctor %s: exit code %d", wrong, code)
		}
	}
	s := serve()
	var errs output
	out := &output{}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"doctor", "--watch", "--json", "--for", "1h", "--store", dir}, out, &errs)
	}()
	until := func(what *output, says string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !strings.Contains(what.String(), says); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("never %q: %s%s", says, out, &errs)
			}
		}
	}
	for n.Load() < 2 {
		time.Sleep(10 * time.Millisecond)
	}
	s.Close()
	until(&errs, "waiting for it")
	s = serve()
	defer s.Close()
	until(out, "billing_header")
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
	var x Said
	if err := json.Unmarshal([]byte(out.String()), &x); err != nil || x.Client != "claude-code" || x.Requests != 3 || x.Cause != "billing_header" || x.Advice != "set it" || x.Token != 31 {
		t.Errorf("%+v %v", x, err)
	}
	var text bytes.Buffer
	if code := run(t.Context(), []string{"doctor", "--watch", "--for", "10ms", "--store", dir}, &text, &bytes.Buffer{}); code != 0 || text.String() != "no request came\n" {
		t.Errorf("exit code %d: %s", code, &text)
	}
}
