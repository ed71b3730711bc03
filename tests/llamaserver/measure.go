//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// measured is what measure reports. Times are medians by the client's clock, in milliseconds.
type measured struct {
	Server            string  `json:"server"`
	Model             string  `json:"model"`
	PromptTokens      int     `json:"prompt_tokens"`
	ReusedTokens      int     `json:"reused_tokens"` // of the restored prompt
	ColdTTFT          float64 `json:"cold_ttft_ms"`
	RestoredTTFT      float64 `json:"restored_ttft_ms"`
	ServerCacheTTFT   float64 `json:"server_cache_ttft_ms"`
	SameText          bool    `json:"same_text"`
	RestoredNotReused int64   `json:"restored_not_reused"` // tokens
	MetricsOK         bool    `json:"metrics_ok"`
	PageOK            bool    `json:"page_ok"`
	// Of the server without a front.
	AloneColdTTFT        float64 `json:"alone_cold_ttft_ms"`
	AloneServerCacheTTFT float64 `json:"alone_server_cache_ttft_ms"`
	OwnRestore           float64 `json:"own_restore_ms"` // of its own slot file of this prompt, by POST /slots
	OurRestore           float64 `json:"our_restore_ms"` // lookup, file and restore together
	// What the front adds to requests that it passes, at the median of requests by turns with and without it; it has no store then.
	OverheadHealth     float64 `json:"overhead_health_ms"`
	OverheadCompletion float64 `json:"overhead_ms"`
	Rounds             int     `json:"rounds"`
	Answer             string  `json:"answer"`
}

const (
	leastTokens = 1500
	answerWords = 24
	again       = 3 // how often a prompt is asked for in its slot, and restored after a kill
)

// measure takes the time to the first token of prompts that a front has not seen, that are still in their slot, and that were computed before
// the server was killed.
func measure(ctx context.Context, r *rig) (any, error) {
	out := &measured{Server: r.version, Model: filepath.Base(r.model), Rounds: r.rounds, SameText: true}
	words, sung, args := 1080, answerWords, []string{"-c", "4096"}
	if r.tiny {
		words, sung = 60, 6
	}
	dir, err := r.folder("slots")
	if err != nil {
		return nil, err
	}
	alone, err := r.alone(ctx, append(args, "--slot-save-path", dir+"/")...)
	if err != nil {
		return nil, err
	}
	f, err := r.serve(ctx, filepath.Join(r.dir, "store"), nil, args...)
	if err != nil {
		return nil, err
	}
	if err := f.ready(ctx); err != nil {
		return nil, err
	}
	var cold, cache, restored, aloneCold, aloneCache, own, our []float64
	var wrong []error
	for i := range r.rounds {
		ask, _ := song(uint64(i), sung)
		prompt := diary([]string{"Ada", "Ben", "Cleo", "Dora", "Emil"}[i%5], uint64(i), words) + ask
		body := object{"prompt": prompt, "n_predict": answerWords, "temperature": 0, "stream": true}
		// Alone, and never killed.
		want, err := must(ctx, alone.url, body)
		if err != nil {
			return out, err
		}
		hot, err := must(ctx, alone.url, body)
		if err != nil {
			return out, err
		}
		took, err := ownRestore(ctx, alone.url)
		if err != nil {
			return out, err
		}
		if hot.text != want.text {
			wrong = append(wrong, fmt.Errorf("the server alone answers %q from its cache, and %q without", hot.text, want.text))
		}
		aloneCold, aloneCache, own = append(aloneCold, ms(want.first)), append(aloneCache, ms(hot.first)), append(own, ms(took))
		// Behind the front.
		miss, err := must(ctx, f.url, body)
		if err != nil {
			return out, err
		}
		var slot, hit answer
		for range again {
			if slot, err = must(ctx, f.url, body); err != nil {
				return out, err
			}
			cache = append(cache, ms(slot.first))
		}
		for range again {
			if _, err := f.stored(ctx); err != nil {
				return out, err
			}
			if err := f.killServer(ctx); err != nil {
				return out, err
			}
			if hit, err = must(ctx, f.url, body); err != nil {
				return out, err
			}
			restored = append(restored, ms(hit.first))
			if t, ok := headerMS(hit.header); ok {
				our = append(our, t)
			} else {
				wrong = append(wrong, fmt.Errorf("after the kill the prompt was not restored: %v", hit))
			}
		}
		r.note("round %d: cold %v, in its slot %v, restored %v (%s); alone cold %v, in its slot %v, own file %v", i+1, miss.first, slot.first, hit.first, hit.header, want.first, hot.first, took)
		cold = append(cold, ms(miss.first))
		out.PromptTokens, out.ReusedTokens, out.Answer = hit.cached+hit.prompt, hit.cached, hit.text
		for _, x := range []struct {
			what string
			got  answer
			head string
		}{{"cold", miss, "miss"}, {"in its slot", slot, "slot"}, {"restored", hit, "hit"}} {
			if !strings.HasPrefix(x.got.header, x.head) {
				wrong = append(wrong, fmt.Errorf("%s: X-Dormouse is %q, expected %s", x.what, x.got.header, x.head))
			}
			if x.got.text != want.text {
				out.SameText = false
				wrong = append(wrong, fmt.Errorf("%s: the answer is %q, that of the server alone %q", x.what, x.got.text, want.text))
			}
		}
		if hit.cached < hit.cached+hit.prompt-1 {
			wrong = append(wrong, fmt.Errorf("%d tokens of the restored prompt were computed again", hit.prompt))
		}
	}
	out.ColdTTFT, out.ServerCacheTTFT, out.RestoredTTFT = median(cold), median(cache), median(restored)
	out.AloneColdTTFT, out.AloneServerCacheTTFT, out.OwnRestore, out.OurRestore = median(aloneCold), median(aloneCache), median(own), median(our)
	status, err := f.stored(ctx)
	if err != nil {
		return out, err
	}
	if out.RestoredNotReused = status.Unused; status.Unused > 0 && !r.tiny { // a small prompt goes back to a checkpoint
		wrong = append(wrong, fmt.Errorf("%d tokens were restored and computed again", status.Unused))
	}
	if !r.tiny && out.PromptTokens < leastTokens {
		wrong = append(wrong, fmt.Errorf("the prompts have %d tokens, expected %d at least", out.PromptTokens, leastTokens))
	}
	if err := f.checkMetrics(ctx); err != nil {
		wrong = append(wrong, err)
	} else {
		out.MetricsOK = true
	}
	if err := f.checkPage(ctx); err != nil {
		wrong = append(wrong, err)
	} else {
		out.PageOK = true
	}
	if err := f.end(); err != nil {
		wrong = append(wrong, err)
	}
	if err := r.overhead(ctx, out); err != nil {
		wrong = append(wrong, err)
	}
	return out, errors.Join(wrong...)
}

// ownRestore has a server save its first slot that holds something, empty it, and restore it: how long does that take?
func ownRestore(ctx context.Context, base string) (time.Duration, error) {
	var done struct {
		Saved    int `json:"n_saved"`
		Restored int `json:"n_restored"`
	}
	for id := 0; ; id++ {
		slot := join(base, "/slots/"+strconv.Itoa(id))
		if err := post(ctx, slot+"?action=save", object{"filename": "own"}, &done); err != nil {
			return 0, err
		}
		if done.Saved == 0 {
			continue
		}
		if err := post(ctx, slot+"?action=erase", object{}, nil); err != nil {
			return 0, err
		}
		start := time.Now()
		err := post(ctx, slot+"?action=restore", object{"filename": "own"}, &done)
		took := time.Since(start)
		if err == nil && done.Restored != done.Saved {
			err = fmt.Errorf("the server restored %d tokens of %d", done.Restored, done.Saved)
		}
		// The next round begins with empty slots.
		return took, errors.Join(err, post(ctx, slot+"?action=erase", object{}, nil))
	}
}

var inHeader = regexp.MustCompile(`ms=([0-9]+)`)

// headerMS is what X-Dormouse says that a hit took.
func headerMS(header string) (float64, bool) {
	m := inHeader.FindStringSubmatch(header)
	if m == nil {
		return 0, false
	}
	t, err := strconv.ParseFloat(m[1], 64)
	return t, err == nil
}

// overhead compares requests through a front that has no store with requests to the same server, by turns.
func (r *rig) overhead(ctx context.Context, out *measured) error {
	tiny := *r
	tiny.model = tinyModel
	store := filepath.Join(r.dir, "no-store")
	if err := os.WriteFile(store, []byte("not a folder"), 0o600); err != nil {
		return err
	}
	f, err := tiny.serve(ctx, store, nil, "-c", "512")
	if err != nil {
		return err
	}
	r.procs = tiny.procs
	body := object{"prompt": "Once upon a time", "n_predict": 1, "temperature": 0}
	if err := until(ctx, "a front without a store passes requests", func() (bool, error) {
		a, err := complete(ctx, f.url, body)
		return err == nil && a.header == "pass; reason=no_store", nil
	}); err != nil {
		return err
	}
	inner, err := f.inner(ctx)
	if err != nil {
		return err
	}
	transport.DisableKeepAlives = false // as most clients; nothing is idle here
	defer func() { transport.DisableKeepAlives = true; transport.CloseIdleConnections() }()
	n := 600
	if r.tiny {
		n = 30
	}
	compare := func(ask func(base string) error) (float64, error) {
		var with, without []float64
		for range n {
			for _, x := range []struct {
				base string
				took *[]float64
			}{{f.url, &with}, {inner, &without}} {
				start := time.Now()
				if err := ask(x.base); err != nil {
					return 0, err
				}
				*x.took = append(*x.took, ms(time.Since(start)))
			}
		}
		return round(median(with) - median(without)), nil
	}
	if out.OverheadHealth, err = compare(func(base string) error { _, err := get(ctx, join(base, "/health")); return err }); err != nil {
		return err
	}
	if out.OverheadCompletion, err = compare(func(base string) error { _, err := must(ctx, base, body); return err }); err != nil {
		return err
	}
	return f.end()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// round leaves microseconds.
func round(ms float64) float64 { return math.Round(ms*1000) / 1000 }

func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	of = slices.Clone(of)
	slices.Sort(of)
	return round((of[(len(of)-1)/2] + of[len(of)/2]) / 2)
}
