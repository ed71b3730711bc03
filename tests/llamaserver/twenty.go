//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// conversed is what twenty reports.
type conversed struct {
	Server        string `json:"server"`
	Model         string `json:"model"`
	Conversations int    `json:"conversations"`
	Requests      int    `json:"requests"`
	SystemTokens  int    `json:"system_tokens"`
	Asked         int    `json:"asked_tokens"`
	Reused        int    `json:"reused_tokens"`
	Hits          int    `json:"hits"` // helped from the store
	Acknowledged  int    `json:"acknowledged_prompts"`
	ServerKills   int    `json:"server_kills"`
	FrontKills    int    `json:"front_kills"`
	SystemBlocks  int    `json:"system_blocks"` // that are stored of the system prompt
	SameText      bool   `json:"same_text"`
	AtOnce        int    `json:"answers_at_once"`
	AtOnceSame    int    `json:"answers_at_once_same_text"`
	// AtOnceGap is by how much the server alone finds one token likelier than the other, in nats, at most, where answers at once begin to differ.
	AtOnceGap float64 `json:"answers_at_once_largest_gap"`
	Deferred  int     `json:"most_deferred"` // requests that the server put off because their slot was at work
}

// talks are conversations over one system prompt.
type talks struct {
	r      *rig
	f      *front
	alone  *process
	store  string
	song   int // words
	args   []string
	texts  []string // the prompts so far
	asked  []string // prompts since the last kill, or the last time that all was stored
	stored []string // prompts that may not be lost any more
	out    *conversed
}

// twenty holds conversations over one system prompt through four slots.
func twenty(ctx context.Context, r *rig) (any, error) {
	n, turns, words, song := 20, 3, 330, 12
	if r.tiny {
		n, turns, words, song = 6, 2, 50, 5
	}
	t := &talks{r: r, song: song, store: filepath.Join(r.dir, "store"), args: []string{"-c", "8192", "-np", "4", "--metrics"}}
	t.out = &conversed{Server: r.version, Model: filepath.Base(r.model), Conversations: n, SameText: true}
	var err error
	if t.alone, err = r.alone(ctx, "-c", "8192", "-np", "1"); err != nil {
		return nil, err
	}
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	system := diary("Ada", 1, words)
	tokens, err := tokenize(ctx, t.alone.url, system)
	if err != nil {
		return nil, err
	}
	t.out.SystemTokens = len(tokens)
	for i := range n {
		t.texts = append(t.texts, fmt.Sprintf("%s\nLetter %d, to %s.\n", system, i+1, []string{"Mary", "John", "Lucy", "Hugo", "Nina", "Otto", "Rose"}[i%7]))
	}
	for k := range n * turns {
		if err := t.turn(ctx, k%n, k/n); err != nil {
			return t.out, fmt.Errorf("conversation %d, turn %d: %w", k%n+1, k/n+1, err)
		}
		switch step := n * turns / 5; k { // kills at the end of each fifth but the last one
		case step, 3 * step:
			t.asked = nil
			err = t.f.killServer(ctx)
			t.out.ServerKills++
		case 2 * step: // with all acknowledged
			if err = t.acknowledge(ctx); err == nil {
				err = t.killFront(ctx)
			}
		case 4 * step: // at once, with the last turn not saved yet
			err = t.killFront(ctx)
		}
		if err != nil {
			return t.out, err
		}
		if k%5 == 4 {
			if err := t.acknowledge(ctx); err != nil {
				return t.out, err
			}
		}
	}
	if err := t.atOnce(ctx, 2*n); err != nil {
		return t.out, err
	}
	if err := t.acknowledge(ctx); err != nil {
		return t.out, err
	}
	status, err := t.f.stored(ctx)
	if err != nil {
		return t.out, err
	}
	slots := t.slotFolder()
	if err := t.f.end(); err != nil {
		return t.out, err
	}
	if _, err := os.Stat(slots); err == nil || !gone(status.ServerPID) {
		return t.out, fmt.Errorf("after its end the front has left the folder %s or its server, process %d", slots, status.ServerPID)
	}
	return t.out, t.look(ctx)
}

func (t *talks) begin(ctx context.Context) (err error) {
	if t.f, err = t.r.serve(ctx, t.store, nil, t.args...); err != nil {
		return err
	}
	return t.f.ready(ctx)
}

// turn lets one conversation go on, and asks the server alone the same, with nothing in its cache.
func (t *talks) turn(ctx context.Context, i, turn int) error {
	ask, _ := song(uint64(100*i+turn), t.song)
	t.texts[i] += ask
	t.asked = append(t.asked, t.texts[i])
	body := object{"prompt": t.texts[i], "n_predict": 12, "temperature": 0}
	got, err := must(ctx, t.f.url, body)
	if err != nil {
		return err
	}
	body["cache_prompt"] = false
	want, err := must(ctx, t.alone.url, body)
	if err != nil {
		return err
	}
	t.out.Requests++
	t.out.Asked += got.cached + got.prompt
	t.out.Reused += got.cached
	if strings.HasPrefix(got.header, "hit") {
		t.out.Hits++
	}
	if got.text != want.text {
		t.out.SameText = false
		return fmt.Errorf("the answer is %v, alone %v", got, want)
	}
	t.texts[i] += got.text
	return nil
}

// acknowledge waits until all is stored that was asked since the last kill: from then on it may not be lost.
func (t *talks) acknowledge(ctx context.Context) error {
	if _, err := t.f.stored(ctx); err != nil {
		return err
	}
	t.stored, t.asked = append(t.stored, t.asked...), nil
	t.out.Acknowledged = len(t.stored)
	return nil
}

// slotFolder is the folder of the front's slot files.
func (t *talks) slotFolder() string {
	found, _ := filepath.Glob(filepath.Join(shared, "dormouse-slots-"+strconv.Itoa(t.f.pid())+"-*"))
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// shared is where Linux has files that are memory.
const shared = "/dev/shm"

// killFront kills the front: its server goes with it, and its memory. Then it looks at what is stored, and starts another.
func (t *talks) killFront(ctx context.Context) error {
	t.out.FrontKills++
	status, err := t.f.status(ctx)
	if err != nil {
		return err
	}
	slots := t.slotFolder()
	if slots == "" {
		return fmt.Errorf("the front has no folder of slot files in %s", shared)
	}
	t.f.kill()
	t.asked = nil
	if err := until(ctx, "the server ends with the front that was killed", func() (bool, error) { return gone(status.ServerPID), nil }); err != nil {
		return err
	}
	left := int64(0)
	if err := filepath.Walk(slots, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && info.Name() != "LOCK" {
			left += info.Size()
		}
		return nil
	}); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%s: %d bytes of memory are left of the front that was killed", slots, left)
	}
	if err := t.look(ctx); err != nil {
		return err
	}
	if err := t.begin(ctx); err != nil {
		return err
	}
	if _, err := os.Stat(slots); err == nil {
		return fmt.Errorf("%s of the front that was killed is still there", slots)
	}
	return nil
}

// look opens the store and looks for all that was acknowledged, and how often the system prompt is there.
func (t *talks) look(ctx context.Context) (err error) {
	s, err := db.Open(ctx, t.store, db.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	models, err := db.Collect(s.Models())
	if err != nil {
		return err
	}
	if len(models) != 1 {
		return fmt.Errorf("the store has %d models, expected the one that was used", len(models))
	}
	m, err := s.Model(models[0].Fingerprint)
	if err != nil {
		return err
	}
	for _, text := range t.stored {
		tokens, err := tokenize(ctx, t.alone.url, text)
		if err != nil {
			return err
		}
		// Of a model with windows a prompt is stored up to its end, or to the server's checkpoint some tokens before.
		if n, why, err := m.Probe(ctx, kv.Prompt{Tokens: tokens}, db.MatchOptions{}); err != nil || n < len(tokens)-4 {
			return errors.Join(fmt.Errorf("of a prompt of %d tokens that was stored, %d are there: %v", len(tokens), n, why), err)
		}
	}
	t.out.SystemBlocks = 0
	places := map[int]bool{}
	for b, err := range s.Blocks(ctx) {
		if err != nil {
			return err
		}
		if b.Group != 0 || b.First+b.Tokens > t.out.SystemTokens {
			continue
		}
		t.out.SystemBlocks++
		if places[b.First] {
			return fmt.Errorf("the system prompt's tokens from %d on are stored twice", b.First)
		}
		places[b.First] = true
	}
	if t.out.SystemBlocks == 0 && len(t.stored) > 0 {
		return errors.New("nothing is stored of the system prompt")
	}
	return nil
}

// atOnce asks the last turns of the conversations again, several at a time, and looks whether the server ever puts one off.
func (t *talks) atOnce(ctx context.Context, n int) error {
	inner, err := t.f.inner(ctx)
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watch sync.WaitGroup
	watch.Go(func() {
		for watching.Err() == nil {
			if text, err := get(watching, join(inner, "/metrics")); err == nil {
				t.out.Deferred = max(t.out.Deferred, int(scraped(text).sum("llamacpp:requests_deferred", "")))
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	type result struct {
		got answer
		err error
	}
	results := make([]result, n)
	var all sync.WaitGroup
	turns := make(chan struct{}, 8)
	for k := range n {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			results[k].got, results[k].err = must(ctx, t.f.url, object{"prompt": t.texts[k%len(t.texts)], "n_predict": 12, "temperature": 0, "return_tokens": true})
		})
	}
	all.Wait()
	stop()
	watch.Wait()
	for k, x := range results {
		if x.err != nil {
			return fmt.Errorf("one of %d requests at once: %w", n, x.err)
		}
		want, err := must(ctx, t.alone.url, object{"prompt": t.texts[k%len(t.texts)], "n_predict": 12, "temperature": 0, "cache_prompt": false, "return_tokens": true})
		if err != nil {
			return err
		}
		t.out.AtOnce++
		if x.got.text == want.text {
			t.out.AtOnceSame++
			continue
		}
		gap, err := t.gap(ctx, t.texts[k%len(t.texts)], want.tokens, x.got.tokens)
		if err != nil {
			return err
		}
		if t.out.AtOnceGap = max(t.out.AtOnceGap, gap); gap > nearTie {
			return fmt.Errorf("at once the answer is %q, alone %q: one token is likelier than the other by %.2f nats", x.got.text, want.text, gap)
		}
	}
	if t.out.Deferred > 0 {
		return fmt.Errorf("the server has put off %d requests: their slots were at work for others", t.out.Deferred)
	}
	return nil
}

// nearTie is how much likelier one of two tokens may be, in nats, for the batches that others share to decide between them: those move logits by a few tenths.
const nearTie = 0.5

// gap asks the server alone how much likelier a token of one answer is than that of the other, where they begin to differ.
func (t *talks) gap(ctx context.Context, prompt string, one, other []int32) (float64, error) {
	tokens, err := tokenize(ctx, t.alone.url, prompt)
	if err != nil {
		return 0, err
	}
	at := 0
	for at < min(len(one), len(other)) && one[at] == other[at] {
		at++
	}
	if at == min(len(one), len(other)) {
		return 0, fmt.Errorf("two answers of %d and %d tokens differ in none: %v, %v", len(one), len(other), one, other)
	}
	var out struct {
		Probabilities []struct {
			Top []struct {
				ID      int32
				Logprob float64
			} `json:"top_logprobs"`
		} `json:"completion_probabilities"`
	}
	ask := object{"prompt": append(tokens, one[:at]...), "n_predict": 1, "temperature": 0, "n_probs": 64, "cache_prompt": false}
	if err := post(ctx, join(t.alone.url, "/completion"), ask, &out); err != nil {
		return 0, err
	}
	found := map[int32]float64{}
	for _, p := range out.Probabilities[:min(1, len(out.Probabilities))] {
		for _, x := range p.Top {
			found[x.ID] = x.Logprob
		}
	}
	a, ok := found[one[at]]
	b, both := found[other[at]]
	if !ok || !both {
		return 0, fmt.Errorf("tokens %d and %d are not both among the likeliest 64", one[at], other[at])
	}
	return math.Abs(a - b), nil
}
