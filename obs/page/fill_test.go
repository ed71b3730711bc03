package page_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
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
		out = append(out, kv.Token(seed*100_000+i))
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
