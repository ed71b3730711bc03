package page_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
)

// hostile is a model's name that would do harm as HTML.
const hostile = `<script>alert("x")</script>`

// desc is a small model of that name.
func desc(name string, layers int) kv.Descriptor {
	d := kv.Descriptor{
		Name: name, Weights: kv.HashOf(name), Architecture: "test", Tokenizer: kv.HashOf("test"), RoPE: kv.RoPE{Type: kv.NoRoPE}, BlockTokens: 32,
	}
	for layer := range layers {
		for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
			d.Tensors = append(d.Tensors, kv.Tensor{Layer: layer, Role: role, DType: kv.F16, Width: 32})
		}
	}
	return d
}

// open opens a store of the test.
func open(t testing.TB, dir string) *db.Store {
	t.Helper()
	s, err := db.Open(t.Context(), dir, db.Options{Budget: 256 << 20, MinFree: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func register(t testing.TB, s *db.Store, d kv.Descriptor) *db.Model {
	t.Helper()
	m, err := s.Register(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return m.Model
}

// run is n tokens that no other seed has.
func run(seed, n int) (out []kv.Token) {
	for i := range n {
		out = append(out, kv.Token(1_000_000_000+seed*100_000+i))
	}
	return out
}

// turn does what a runtime does: looks a prompt up, restores what there is, computes the rest, stores all.
func turn(t testing.TB, m *db.Model, p kv.Prompt) (restored int, why db.Reason) {
	t.Helper()
	x, err := m.Match(t.Context(), p, db.MatchOptions{Limit: len(p.Tokens) - 1})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	rows := make(kv.Rows, len(m.Descriptor().Tensors))
	for i, te := range m.Descriptor().Tensors {
		rows[i] = kv.Packed(0, len(p.Tokens), bytes.Repeat([]byte{byte(i + 1), 0x3c}, len(p.Tokens)*te.RowBytes()/2))
	}
	got, err := x.Restore(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Extend(context.Background(), p, rows, db.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	return got.Tokens, got.Reason
}

// fill talks: two models, one with a hostile name; a system prompt that twelve conversations share, and some prompts alone. What it did is in rec.
func fill(t testing.TB, s *db.Store, rec *figures.Recorder) {
	t.Helper()
	const rate = 180 // tokens a second
	ended := time.Now().Add(-100 * time.Minute)
	request := func(m *db.Model, name string, p kv.Prompt) {
		ended = ended.Add(time.Minute)
		restored, why := turn(t, m, p)
		n := len(p.Tokens)
		q := figures.Request{
			Ended: ended, Model: name, Outcome: figures.Hit, Reason: figures.Code(why.Code), Asked: n, Reused: restored, Computed: n - restored,
			Restored: restored, Lookup: 40 * time.Microsecond, Restore: time.Duration(restored) * 20 * time.Microsecond,
			Prefill: time.Duration(float64(n-restored) / rate * float64(time.Second)),
		}
		if restored == 0 {
			q.Outcome = figures.Miss
		}
		rec.Add(q)
	}
	chat, other := register(t, s, desc("gemma-3-270m-it-Q8_0", 4)), register(t, s, desc(hostile, 2))
	system := run(1, 512)
	for c := range 12 {
		p := kv.Prompt{Tokens: append([]kv.Token{}, system...), Scope: fmt.Sprint("user", c%5), ScopeStart: len(system)}
		for n := range 1 + (c*5)%7 {
			p.Tokens = append(p.Tokens, run(100+20*c+n, 96+37*((c+n)%5))...)
			request(chat, "gemma-3-270m-it-Q8_0", p)
			if n == 1 && c%3 == 0 { // an answer that was asked for again
				q := p
				q.Tokens = append(append([]kv.Token{}, p.Tokens...), run(1000+c, 160)...)
				request(chat, "gemma-3-270m-it-Q8_0", q)
			}
		}
	}
	for c := range 9 {
		request(other, hostile, kv.Prompt{Tokens: run(2000+c, 128+64*c)})
	}
	for range 4 {
		rec.Add(figures.Request{Model: hostile, Outcome: figures.Pass, Reason: "media"})
	}
	rec.Add(figures.Request{Model: "gemma-3-270m-it-Q8_0", Outcome: figures.Pass, Reason: "<b>secret text of a prompt</b>"})
}

const (
	gemma = "gemma-3-270m-it-Q8_0"
	qwen  = "Qwen3-4B-Instruct-Q4_K_M"
)

// askers are programs, each with its endpoint.
var askers = [][2]string{{"claude-code", "/v1/messages"}, {"opencode", "/v1/chat/completions"}, {"codex", "/v1/responses"}, {"", "/completion"}}

// ask does a turn as a front does, now.
func ask(t testing.TB, m *db.Model, name string, p kv.Prompt, rec *figures.Recorder) {
	restored, why := turn(t, m, p)
	asker := askers[int(p.Tokens[len(p.Tokens)-1])/100_000%len(askers)]
	n := len(p.Tokens)
	q := figures.Request{
		Model: name, Outcome: figures.Hit, Reason: figures.Code(why.Code), Asked: n, Reused: restored, Computed: n - restored,
		Restored: restored, Lookup: 40 * time.Microsecond, Restore: time.Duration(restored) * 20 * time.Microsecond,
		Prefill: time.Duration(float64(n-restored) / 190 * float64(time.Second)), Client: asker[0], Endpoint: asker[1],
	}
	q.FirstByte = q.Lookup + q.Restore + q.Prefill + 4*time.Millisecond
	if restored == 0 {
		q.Outcome = figures.Miss
	}
	if 2*restored < n && restored > 0 {
		q.Parted = &figures.Parted{
			Token: restored + 12, Common: restored + 12, Part: "tools", Age: 3 * time.Hour, Cause: "working_directory",
			Advice: "The working directory stands before the tools: start the client with --exclude-dynamic-system-prompt-sections, or serve with --normalize.",
		}
	}
	if rec != nil {
		rec.Add(q)
	}
}

// talkTo is a conversation of some turns behind a system prompt, with a pause after each.
func talkTo(t testing.TB, m *db.Model, name string, system []kv.Token, c, turns int, pause time.Duration, rec *figures.Recorder) {
	p := kv.Prompt{Tokens: slices.Clone(system), Scope: fmt.Sprint("user", c%4), ScopeStart: len(system)}
	for n := range turns {
		p.Tokens = append(p.Tokens, run(100+50*c+n, 90+41*((3*c+5*n)%6))...)
		ask(t, m, name, p, rec)
		if n == 1 && c%3 == 1 { // asked for again
			q := p
			q.Tokens = append(slices.Clone(p.Tokens), run(5000+c, 170)...)
			ask(t, m, name, q, rec)
		}
		time.Sleep(pause)
	}
}

// live makes a store as nine days leave it, the last of which are in rec; it ends now. It happens in a moment, on a clock of its own.
func live(t *testing.T, dir string, rec *figures.Recorder) {
	now := time.Now()
	synctest.Test(t, func(t *testing.T) {
		before := func(d time.Duration) { time.Sleep(time.Until(now.Add(-d))) }
		const day = 24 * time.Hour
		before(9 * day)
		s, err := db.Open(t.Context(), dir, db.Options{Budget: 256 << 20, MinFree: -1, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		g, q := register(t, s, desc(gemma, 3)), register(t, s, desc(qwen, 2))
		system, tools := run(1, 512), run(2, 1280)
		talkTo(t, q, qwen, tools, 1, 4, time.Minute, nil)
		talkTo(t, g, gemma, system, 2, 3, time.Minute, nil)
		before(5 * day)
		talkTo(t, g, gemma, system, 3, 5, time.Minute, nil)
		talkTo(t, q, qwen, tools, 4, 6, time.Minute, nil)
		before(20 * time.Hour)
		talkTo(t, g, gemma, system, 5, 2, time.Minute, nil)
		talkTo(t, g, gemma, system, 6, 6, time.Minute, nil)
		talkTo(t, q, qwen, run(3, 700), 7, 1, time.Minute, nil)
		before(100 * time.Minute)
		for c := range 3 {
			ask(t, q, qwen, kv.Prompt{Tokens: run(3000+c, 150+90*c)}, rec)
			time.Sleep(90 * time.Second)
		}
		talkTo(t, g, gemma, system, 10, 5, 3*time.Minute, rec)
		talkTo(t, q, qwen, tools, 11, 4, 2*time.Minute, rec)
		talkTo(t, g, gemma, run(4, 210), 12, 2, time.Minute, rec)
		talkTo(t, g, gemma, system, 13, 6, 3*time.Minute, rec)
		before(12 * time.Minute)
		rec.Add(figures.Request{Model: gemma, Outcome: figures.Pass, Reason: "media"})
		talkTo(t, g, gemma, system, 14, 4, 2*time.Minute, rec)
		before(2 * time.Minute)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// talk goes on with that store, now.
func talk(t *testing.T, s *db.Store, rec *figures.Recorder) {
	g, q := register(t, s, desc(gemma, 3)), register(t, s, desc(qwen, 2))
	talkTo(t, g, gemma, run(1, 512), 14, 5, 0, rec)
	rec.Add(figures.Request{Model: qwen, Outcome: figures.Pass, Reason: "model_being_read", Client: "qwen-code", Endpoint: "/v1/chat/completions", FirstByte: 27 * time.Second, Reused: 5, Computed: 7199, Prefill: 26 * time.Second})
	rec.Add(figures.Request{
		Model: qwen, Outcome: figures.Hit, Reason: "diverged", Client: "claude-code", Endpoint: "/v1/messages", Reused: 312, Computed: 6892, Restored: 312, FirstByte: 26 * time.Second, Prefill: 27 * time.Second,
		Parted: &figures.Parted{
			Token: 312, Common: 312, Part: "system prompt", Age: 3 * time.Hour, Cause: "working_directory",
			Advice: "The working directory stands in front of the tools: start Claude Code with --exclude-dynamic-system-prompt-sections.",
		},
	})
	rec.Add(figures.Request{Model: qwen, Outcome: figures.Slot, Reason: "server_cache", Client: "claude-code", Endpoint: "/v1/messages", Reused: 7203, Computed: 1, FirstByte: 140 * time.Millisecond})
	rec.Add(figures.Request{Model: gemma, Cancelled: true, Asked: 18_874, Client: "claude-code", Endpoint: "/v1/messages"})
	ask(t, q, qwen, kv.Prompt{Tokens: run(3001, 180)}, rec)
	talkTo(t, q, qwen, run(2, 1280), 11, 3, 0, rec)
}
