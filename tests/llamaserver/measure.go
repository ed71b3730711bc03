//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
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
	// Lookup, file and restore of ours together; and what the server takes for its own slot file of this prompt, by POST /slots: by turns,
	// each in a server that was killed and has just been started, and then once more in the same server.
	OurRestore     float64 `json:"our_restore_ms"`
	OwnRestore     float64 `json:"own_restore_ms"`
	OurRestoreWarm float64 `json:"our_restore_warm_ms"`
	OwnRestoreWarm float64 `json:"own_restore_warm_ms"`
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
	aloneArgs := append(args[:2:2], "--slot-save-path", dir+"/")
	alone, err := r.alone(ctx, aloneArgs...)
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
	var cold, cache, restored, aloneCold, aloneCache, own, warm, our, ourWarm []float64
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
		if err := saveOwn(ctx, alone.url); err != nil {
			return out, err
		}
		if hot.text != want.text {
			wrong = append(wrong, fmt.Errorf("the server alone answers %q from its cache, and %q without", hot.text, want.text))
		}
		aloneCold, aloneCache = append(aloneCold, ms(want.first)), append(aloneCache, ms(hot.first))
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
			alone.kill()
			if alone, err = r.alone(ctx, aloneArgs...); err != nil {
				return out, err
			}
			fresh, err := restoreOwn(ctx, alone.url, 0)
			if err != nil {
				return out, err
			}
			took, err := restoreOwn(ctx, alone.url, 0)
			if err != nil {
				return out, err
			}
			own, warm = append(own, ms(fresh)), append(warm, ms(took))
			if err := f.killServer(ctx); err != nil {
				return out, err
			}
			if hit, fresh, err = f.restored(ctx, body); err != nil {
				return out, err
			}
			restored, our = append(restored, ms(hit.first)), append(our, ms(fresh))
			if _, took, err = f.restored(ctx, body); err != nil {
				return out, err
			}
			ourWarm = append(ourWarm, ms(took))
		}
		r.note("round %d: cold %v, in its slot %v, restored %v (%s); alone cold %v, in its slot %v, own file %.1f, ours %.1f ms; again %.1f and %.1f", i+1, miss.first, slot.first, hit.first, hit.header, want.first, hot.first, own[len(own)-again:], our[len(our)-again:], warm[len(warm)-again:], ourWarm[len(ourWarm)-again:])
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
	out.AloneColdTTFT, out.AloneServerCacheTTFT, out.OwnRestoreWarm = median(aloneCold), median(aloneCache), median(warm)
	out.OurRestore, out.OwnRestore, out.OurRestoreWarm = median(our), median(own), median(ourWarm)
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

// ownFile is the name of a server's own slot file.
const ownFile = "own"

// saveOwn has a server save its first slot that holds something, and empty it.
func saveOwn(ctx context.Context, base string) error {
	var done struct {
		Saved int `json:"n_saved"`
	}
	for id := 0; ; id++ {
		slot := slotAt(base, id)
		if err := post(ctx, slot+"save", object{"filename": ownFile}, &done); err != nil || done.Saved > 0 {
			return errors.Join(err, post(ctx, slot+"erase", object{}, nil))
		}
	}
}

// restoreOwn has a server restore its own slot file: how long does that take? The slot is empty before and afterwards.
func restoreOwn(ctx context.Context, base string, id int) (time.Duration, error) {
	var done struct {
		Restored int `json:"n_restored"`
	}
	start := time.Now()
	err := post(ctx, slotAt(base, id)+"restore", object{"filename": ownFile}, &done)
	took := time.Since(start)
	if err == nil && done.Restored == 0 {
		err = errors.New("the server restored no tokens")
	}
	return took, errors.Join(err, post(ctx, slotAt(base, id)+"erase", object{}, nil))
}

func slotAt(base string, id int) string { return join(base, "/slots/"+strconv.Itoa(id)) + "?action=" }

// restored asks for a prompt that no slot holds: how long do lookup, file and restore take? No slot holds it afterwards.
func (f *front) restored(ctx context.Context, body object) (a answer, took time.Duration, err error) {
	before, err := f.restoring(ctx)
	if err == nil {
		a, err = must(ctx, f.url, body)
	}
	if err == nil && !strings.HasPrefix(a.header, "hit") {
		err = fmt.Errorf("a prompt that no slot holds was not restored: %v", a)
	}
	if err != nil {
		return a, 0, err
	}
	if _, err := f.stored(ctx); err != nil {
		return a, 0, err
	}
	after, err := f.restoring(ctx)
	if err != nil {
		return a, 0, err
	}
	// The server empties the idle slots when another prompt begins.
	_, err = must(ctx, f.url, object{"prompt": "Once upon a time", "n_predict": 1})
	return a, after - before, err
}

// overhead compares requests through a front that has no store with requests to the same server, by turns.
func (r *rig) overhead(ctx context.Context, out *measured) error {
	tiny := *r
	tiny.model = tinyModel
	store := filepath.Join(r.dir, "no-store")
	if err := os.Mkdir(store, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(store, "letter.txt"), []byte("somebody's own file"), 0o600); err != nil {
		return err
	}
	f, err := tiny.serve(ctx, store, nil, "-c", "512")
	if err != nil {
		return err
	}
	r.procs = tiny.procs
	body := object{"prompt": "Once upon a time", "n_predict": 1, "temperature": 0}
	if err := until(ctx, "a front without a store passes requests", func() (bool, error) {
		if !f.running() {
			return false, errors.New("it has ended")
		}
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
