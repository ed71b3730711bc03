//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

const systemText = "You are a helpful guide. Answer briefly and truthfully."

// filler is talk about nothing.
var filler = []string{
	"The weather was mild and the river ran slowly past the old mill, where two boats lay in the grass.",
	"She counted the lamps along the street, and found one more than the day before.",
}

// endless holds a conversation of many turns in a small store, and once more with a log that is never rewritten.
func endless(ctx context.Context, s settings, out io.Writer) error {
	if s.n == 0 {
		s.n = 500
	}
	r, err := load(s.model, false, llama.ContextOptions{Tokens: 6144, Sequences: 32})
	if err != nil {
		return err
	}
	r.store.Budget = 160 << 20
	with, err := r.talk(ctx, filepath.Join(s.dir, "rewritten"), s, 0)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "endless: %d turns, budget 160 MiB: %v\n", s.n, with)
	without, err := r.talk(ctx, filepath.Join(s.dir, "never"), s, 1<<30)
	fmt.Fprintf(out, "endless: never rewritten: %v, %v\n", without, err)
	if with.storeErrors > 0 {
		return fmt.Errorf("%d puts failed, the last: %w", with.storeErrors, with.storeError)
	}
	if with.tokens > 4*2048+2*1536 || with.file > 1<<20 {
		return fmt.Errorf("the log has %d tokens in %d bytes", with.tokens, with.file)
	}
	if s.n >= 500 && float64(with.rssEnd) > 1.05*float64(with.rssEarly) {
		return fmt.Errorf("resident memory grew from %d KiB after the first rewrite to %d KiB", with.rssEarly, with.rssEnd)
	}
	if s.n >= 500 && err == nil && without.storeErrors == 0 {
		return errors.New("without rewrites nothing fails: the test shows nothing")
	}
	return nil
}

// course is how a long conversation went.
type course struct {
	turns, tokens, rewrites, storeErrors int
	storeError                           error
	file                                 int64
	rssEarly, rssEnd                     int // KiB, without the model's pages; early: after the first rewrite
	used                                 int64
}

func (c course) String() string {
	return fmt.Sprintf("%d turns, log %d tokens in %d KiB, %d rewrites, %d failed puts, store %d MiB, resident %d KiB after the first rewrite and %d KiB at the end",
		c.turns, c.tokens, c.file>>10, c.rewrites, c.storeErrors, c.used>>20, c.rssEarly, c.rssEnd)
}

func (r *rig) talk(ctx context.Context, dir string, s settings, log int) (got course, err error) {
	seat, err := r.sit(ctx, dir, nil)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, seat.close()) }()
	c, err := seat.host.Open(ctx, "long", chat.Options{System: r.tokens(systemText), Log: log})
	if err != nil {
		return got, err
	}
	rnd := rand.New(rand.NewPCG(s.seed, 0))
	vocabulary := r.tokens(strings.Join(filler, " "))
	for i := range s.n {
		if i%7 == 0 {
			if err := c.SetFact(ctx, "topic", vocabulary[rnd.IntN(20):][:8]); err != nil {
				return got, err
			}
		}
		t, err := c.Begin(ctx, some(rnd, vocabulary, 48), chat.BeginOptions{Reserve: 64})
		if err != nil {
			return got, fmt.Errorf("turn %d: %w", i, err)
		}
		// The answer is given, so that it need not be decoded one by one.
		if err := errors.Join(t.Append(ctx, some(rnd, vocabulary, 24)), last(t.Logits(ctx)), t.Commit(ctx)); err != nil {
			return got, fmt.Errorf("turn %d: %w", i, err)
		}
		if err := seat.host.Tidy(ctx); err != nil {
			return got, fmt.Errorf("rewriting after turn %d: %w", i, err)
		}
		// The first rewrite is when the process has all that it will use again and again.
		if got.rssEarly == 0 && i >= s.n/5 && c.Stats().Rewrites > 0 {
			got.rssEarly = resident()
		}
	}
	got.rssEnd = resident()
	st := c.Stats()
	got.turns, got.rewrites, got.storeErrors, got.storeError = st.Turns, st.Rewrites, st.StoreErrors, st.StoreError
	for _, p := range c.View() {
		got.tokens = p.End
	}
	for i, err := range seat.host.List(ctx) {
		if err != nil {
			return got, err
		}
		got.file += i.Bytes
	}
	stats, err := seat.store.Stats()
	got.used = stats.DiskBytes
	return got, err
}

func last[T any](_ T, err error) error { return err }

// some tokens of a vocabulary, at least half of most.
func some(rnd *rand.Rand, vocabulary []kv.Token, most int) []kv.Token {
	t := make([]kv.Token, most/2+rnd.IntN(most/2+1))
	for i := range t {
		t[i] = vocabulary[rnd.IntN(len(vocabulary))]
	}
	return t
}

// resident is what the process has in memory of its own, in KiB; 0 where the system does not say.
func resident() (kib int) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			kib, _ = strconv.Atoi(f[1])
		}
	}
	return kib
}
