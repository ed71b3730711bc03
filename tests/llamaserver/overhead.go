//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// overheads is what overhead reports. Times are medians by the client's clock, in milliseconds, of answers of one token.
type overheads struct {
	Server     string  `json:"server"`
	Model      string  `json:"model"`
	Tokens     int     `json:"tokens"` // that lay in the slot, of the last prompt
	Pairs      int     `json:"pairs"`
	Front      float64 `json:"front_ms"`
	Direct     float64 `json:"direct_ms"`
	Ratio      float64 `json:"ratio"` // of the medians
	Low        float64 `json:"ratio_low"`
	High       float64 `json:"ratio_high"` // 95 % of what pairs drawn anew from these come to
	FloorRatio float64 `json:"floor_ratio"`
	FloorLow   float64 `json:"floor_low"`
	FloorHigh  float64 `json:"floor_high"` // the same of a proxy that does nothing else, by turns with the server afterwards
	Health     float64 `json:"overhead_health_ms"`
	InSlot     int     `json:"in_slot"` // answers that say so
}

// mostRatio is how much longer the next turn may take with a front: at the lower end of the interval.
const mostRatio = 1.10

// overhead compares the next turn of a long conversation with a front and without, by turns. Each server has a conversation of its own in its slot, which
// grows by the same turns.
func overhead(ctx context.Context, r *rig) (any, error) {
	tokens, args := r.tokens, []string{"-c", strconv.Itoa(r.tokens + r.tokens/4), "-np", "1"}
	if r.tiny {
		tokens, args = 1500, []string{"-c", "4096", "-np", "1", "--override-kv", "llama.context_length=int:4096"}
	}
	out := &overheads{Server: r.version, Model: r.model, Pairs: r.times}
	store, err := r.folder("store")
	if err != nil {
		return nil, err
	}
	alone, err := r.alone(ctx, args...)
	if err != nil {
		return nil, err
	}
	f, err := r.serve(ctx, store, nil, args...)
	if err != nil {
		return nil, err
	}
	if err := f.ready(ctx); err != nil {
		return nil, err
	}
	text, err := textOf(ctx, alone.url, tokens)
	if err != nil {
		return nil, err
	}
	with, without := newChat(text), newChat(text)
	r.note("computing %d tokens, twice", tokens)
	for _, x := range []struct {
		c    *chat
		base string
	}{{with, f.url}, {without, alone.url}} {
		if _, _, err := x.c.turn(ctx, x.base); err != nil {
			return nil, err
		}
	}
	if _, err := f.stored(ctx); err != nil {
		return nil, err
	}
	var front, direct []float64
	for i := range r.times {
		one := func() error {
			took, a, err := with.turn(ctx, f.url)
			if front = append(front, took); strings.HasPrefix(a.header, "slot") {
				out.InSlot++
			}
			if err == nil {
				_, err = f.stored(ctx) // the server alone is measured when nothing else is at work
			}
			return err
		}
		other := func() error {
			took, _, err := without.turn(ctx, alone.url)
			direct = append(direct, took)
			return err
		}
		if i%2 == 1 {
			one, other = other, one
		}
		if err := one(); err != nil {
			return nil, err
		}
		if err := other(); err != nil {
			return nil, err
		}
	}
	out.Front, out.Direct = median(front), median(direct)
	out.Ratio, out.Low, out.High = ratio(front, direct)
	base, err := url.Parse(alone.url)
	if err != nil {
		return nil, err
	}
	proxy := httputil.NewSingleHostReverseProxy(base)
	proxy.FlushInterval = -1
	between := httptest.NewServer(proxy)
	defer between.Close()
	front, direct = nil, nil
	for i := range r.times {
		for k := range 2 {
			through := (i+k)%2 == 0
			at := alone.url
			if through {
				at = between.URL
			}
			took, a, err := without.turn(ctx, at)
			if err != nil {
				return nil, err
			}
			out.Tokens = a.cached
			if through {
				front = append(front, took)
			} else {
				direct = append(direct, took)
			}
		}
	}
	out.FloorRatio, out.FloorLow, out.FloorHigh = ratio(front, direct)
	if out.Health, err = r.health(ctx, f.url, alone.url); err != nil {
		return nil, err
	}
	if err := f.end(); err != nil {
		return out, err
	}
	switch {
	case out.InSlot < r.times:
		err = fmt.Errorf("of %d answers %d say that the slot had their prompt", r.times, out.InSlot)
	case out.Low > mostRatio && !r.quick:
		err = fmt.Errorf("with the front it takes %.3f times as long (%.3f to %.3f), at most %.2f is allowed at the lower end", out.Ratio, out.Low, out.High, mostRatio)
	}
	return out, err
}

// health is how much longer GET /health takes with a front.
func (r *rig) health(ctx context.Context, with, without string) (float64, error) {
	transport.DisableKeepAlives = false // as most clients
	defer func() { transport.DisableKeepAlives = true; transport.CloseIdleConnections() }()
	var a, b []float64
	for range 300 {
		for _, x := range []struct {
			base string
			took *[]float64
		}{{with, &a}, {without, &b}} {
			start := time.Now()
			if _, err := get(ctx, join(x.base, "/health")); err != nil {
				return 0, err
			}
			*x.took = append(*x.took, ms(time.Since(start)))
		}
	}
	return round(median(a) - median(b)), nil
}

// textOf is a text of some tokens.
func textOf(ctx context.Context, base string, tokens int) (string, error) {
	words := tokens
	for {
		text := diary("Edmund", 5, words)
		list, err := tokenize(ctx, base, text)
		if err != nil {
			return "", err
		}
		if n := len(list); n > tokens {
			words = words * tokens / n
		} else if n > tokens*95/100 {
			return text, nil
		} else {
			words += words * (tokens - n) / tokens
		}
		if words < 10 {
			return text, nil
		}
	}
}

// chat is a conversation that grows by a turn with each request.
type chat struct {
	messages []object
	turns    int
}

func newChat(system string) *chat {
	return &chat{messages: []object{{"role": "system", "content": system}, {"role": "user", "content": "What did the keeper see on the first day?"}}}
}

// turn asks, and adds an answer, always the same, and the next question.
func (c *chat) turn(ctx context.Context, base string) (took float64, a answer, err error) {
	b, err := json.Marshal(object{"messages": c.messages, "max_tokens": 1, "temperature": 0})
	if err != nil {
		return 0, a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, join(base, "/v1/chat/completions"), bytes.NewReader(b))
	if err != nil {
		return 0, a, err
	}
	req.Header.Set("Content-Type", "application/json")
	start := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, a, err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	took = ms(time.Since(start))
	if err != nil || resp.StatusCode != http.StatusOK {
		return took, a, fmt.Errorf("status %d: %.300s (%w)", resp.StatusCode, all, err)
	}
	a.header = resp.Header.Get(llamaserver.Header)
	var p piece
	if err := json.Unmarshal(all, &p); err != nil {
		return took, a, err
	}
	if p.Timings != nil {
		a.cached, a.prompt = p.Timings.Cached, p.Timings.Prompt
	}
	c.turns++
	c.messages = append(c.messages, object{"role": "assistant", "content": "A boat."}, object{"role": "user", "content": fmt.Sprintf("And on day %d?", c.turns+1)})
	return took, a, nil
}

// ratio is that of two medians, and between which values 95 of 100 are that come from pairs drawn anew.
func ratio(a, b []float64) (is, low, high float64) {
	pick := rand.New(rand.NewPCG(1, 2))
	var drawn []float64
	x, y := make([]float64, len(a)), make([]float64, len(a))
	for range 4000 {
		for i := range x {
			k := pick.IntN(len(a))
			x[i], y[i] = a[k], b[k]
		}
		drawn = append(drawn, median(x)/median(y))
	}
	slices.Sort(drawn)
	return round(median(a) / median(b)), round(drawn[len(drawn)*25/1000]), round(drawn[len(drawn)*975/1000])
}
