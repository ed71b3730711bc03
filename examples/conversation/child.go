package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/tiny"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/inplace"
)

// job is what the second process is asked to do.
type job struct {
	Dir   string
	From  int  // the step to begin with
	Again bool // the step was begun by a process that was killed
}

// event is what it says after each step.
type event struct {
	Step  int
	Die   string    // it waits to be killed here
	Turns [][]int32 // when it opened the conversation: those that are there

	Turn   int
	Answer []int32
	Scores string // after the message
	Merged []chat.Fact
	Pieces []chat.Piece // that the turn saw
	Stats  chat.TurnStats
	Same   bool // branches: each had the scores that a plain answer has
	Final  *final
}

// final is what is measured at the end.
type final struct {
	Facts                                  []chat.Fact
	Tokens                                 []int32 // of the log
	Stats                                  chat.Stats
	SwitchMillis, ReloadMillis, SwapMillis float64
}

// child holds the conversation: it does what the script says, and tells.
func child(ctx context.Context, in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return err
	}
	say := json.NewEncoder(out)
	h, err := open(ctx, j.Dir)
	if err != nil {
		return err
	}
	defer h.close()
	c, err := h.host.Open(ctx, "walk", chat.Options{
		System: h.tokenizer.Encode(system), Facts: factTokens, Ring: ringTokens, Reserve: words,
		Merge: func(_ context.Context, facts []chat.Fact, room int) ([]chat.Fact, error) {
			return shorter(facts, room), nil
		},
	})
	if err != nil {
		return err
	}
	var there [][]int32
	for _, t := range c.Turns() {
		there = append(there, slices.Concat(t.Message, t.Answer))
	}
	if err := say.Encode(event{Step: -1, Turns: there}); err != nil {
		return err
	}
	for i := j.From; i < len(script); i++ {
		s := script[i]
		die := (s.die || s.do == "kill") && !(j.Again && i == j.From)
		e, err := h.do(ctx, c, s, die)
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", i, s.do, err)
		}
		e.Step = i
		if err := say.Encode(e); err != nil {
			return err
		}
		if e.Die != "" {
			io.Copy(io.Discard, in) // until the kill, or the end of the parent
			return errors.New("nobody killed this process")
		}
	}
	f, err := h.measure(ctx, c)
	if err != nil {
		return err
	}
	return say.Encode(event{Step: len(script), Final: f})
}

// holder is a host with all that is beneath it.
type holder struct {
	store     *db.Store
	rt        *inplace.Runtime
	host      *chat.Host
	tokenizer *tiny.Tokenizer
}

// smallModel is the transformer of both processes.
func smallModel(t *tiny.Tokenizer) (*tiny.Model, error) {
	shape := tiny.Default(t)
	shape.Layers = 3 // an example should take a moment, not a minute
	return tiny.New(shape, 1)
}

func open(ctx context.Context, dir string) (*holder, error) {
	h := &holder{tokenizer: tiny.NewTokenizer()}
	model, err := smallModel(h.tokenizer)
	if err != nil {
		return nil, err
	}
	if h.store, err = db.Open(ctx, filepath.Join(dir, "store"), db.Options{Budget: 256 << 20}); err != nil {
		return nil, err
	}
	// Raw keeps every bit of a row, so that everything can be compared to the last bit.
	if h.rt, err = inplace.New(ctx, h.store, model, inplace.Options{Ring: filepath.Join(dir, "ring"), Cells: 2048, BlockTokens: 16, Codec: quant.Raw}); err != nil {
		return nil, errors.Join(err, h.store.Close())
	}
	if h.host, err = chat.NewHost(h.store, h.rt.Model(), h.rt); err != nil {
		return nil, errors.Join(err, h.rt.Close(), h.store.Close())
	}
	return h, nil
}

func (h *holder) close() error { return errors.Join(h.host.Close(), h.rt.Close(), h.store.Close()) }

// do does one step. It stops in the middle of it if the process is to die there.
func (h *holder) do(ctx context.Context, c *chat.Conversation, s step, die bool) (e event, err error) {
	switch s.do {
	case "kill":
		if die {
			e.Die = "between two turns"
		}
		return e, nil
	case "fact":
		before := c.Facts()
		if err := c.SetFact(ctx, s.name, h.tokenizer.Encode(s.text)); err != nil {
			return e, err
		}
		if after := c.Facts(); merged(before, after, s.name) {
			e.Merged = after
			return e, h.host.Tidy(ctx) // the rewrite would come between turns, by itself
		}
		return e, nil
	}
	o := chat.BeginOptions{}
	if s.do == "edit" { // until Commit the old turn stays
		turns := c.Turns()
		o.Instead = turns[len(turns)-s.back].ID
	}
	if s.recent > 0 {
		o.Policy = chat.Recent(s.recent)
	}
	t, err := c.Begin(ctx, h.tokenizer.Encode(s.text), o)
	if err != nil {
		return e, err
	}
	scores, err := t.Logits(ctx)
	if err != nil {
		return e, err
	}
	e.Scores, e.Pieces = sum(scores), c.View()
	said := 0
	if s.do == "branches" {
		if said, e.Same, err = branches(ctx, t); err != nil {
			return e, err
		}
	}
	for _, err := range t.Generate(ctx, chat.Greedy, nil) {
		if err != nil {
			return e, err
		}
		if said++; said == words/2 && die {
			e.Die = "in the middle of a turn"
			return e, nil
		}
		if said == words {
			break
		}
	}
	e.Turn, e.Answer, e.Stats = int(t.ID()), t.Answer(), t.Stats()
	return e, t.Commit(ctx)
}

// branches tries three answers, of which the likeliest first word is kept, and says how many words that gave, and whether it goes on like the
// plain answer does.
func branches(ctx context.Context, t *chat.Turn) (n int, same bool, err error) {
	scores, err := t.Logits(ctx)
	if err != nil {
		return 0, false, err
	}
	first := likeliest(scores)
	bs, err := t.Fork(ctx, 3)
	if err != nil {
		return 0, false, err
	}
	next := [][]kv.Token{{first + 1}, {first}, {first + 2}}
	for range words / 3 {
		if err := t.Advance(ctx, bs, next); err != nil {
			return 0, false, err
		}
		for i, b := range bs {
			next[i] = []kv.Token{likeliest(b.Logits())}
		}
	}
	want := sum(bs[1].Logits())
	if err := errors.Join(bs[0].Drop(), bs[1].Promote(ctx)); err != nil {
		return 0, false, err
	}
	got, err := t.Logits(ctx)
	return words / 3, err == nil && sum(got) == want, err
}

// merged says whether facts changed beside the one that was set.
func merged(before, after []chat.Fact, set string) bool {
	for _, f := range before {
		if f.Name == set {
			continue
		}
		if !slices.ContainsFunc(after, func(g chat.Fact) bool { return g.Name == f.Name && slices.Equal(g.Tokens, f.Tokens) }) {
			return true
		}
	}
	return false
}

// shorter makes facts fit: it cuts the longest one, again and again. An app would ask a model to write them anew.
func shorter(facts []chat.Fact, room int) []chat.Fact {
	fs := slices.Clone(facts)
	for {
		sum, longest := 0, 0
		for i, f := range fs {
			if sum += len(f.Tokens); len(f.Tokens) > len(fs[longest].Tokens) {
				longest = i
			}
		}
		if sum <= room*3/4 {
			return fs
		}
		fs[longest].Tokens = fs[longest].Tokens[:len(fs[longest].Tokens)-1]
	}
}

// measure opens a second conversation, goes to and fro, parks and loads.
func (h *holder) measure(ctx context.Context, c *chat.Conversation) (*final, error) {
	f := &final{Facts: c.Facts(), Stats: c.Stats()}
	f.SwapMillis = millis(f.Stats.Swap)
	other, err := h.host.Open(ctx, "other", chat.Options{System: h.tokenizer.Encode(system), Facts: factTokens, Ring: ringTokens, Reserve: words})
	if err != nil {
		return nil, err
	}
	quick := func(c *chat.Conversation) (chat.TurnStats, error) {
		t, err := c.Begin(ctx, h.tokenizer.Encode("Yes."), chat.BeginOptions{Reserve: 1})
		if err != nil {
			return chat.TurnStats{}, err
		}
		return t.Stats(), t.Abort(ctx)
	}
	var switches []float64
	for range 5 {
		for _, c := range []*chat.Conversation{other, c} {
			s, err := quick(c)
			if err != nil {
				return nil, err
			}
			switches = append(switches, millis(s.Show))
		}
	}
	slices.Sort(switches)
	f.SwitchMillis = switches[len(switches)/2]
	var reloads []float64
	for range 5 {
		if err := h.host.Trim(ctx, h.rt.Limits().Cells); err != nil {
			return nil, err
		}
		before := c.Stats()
		if _, err := quick(c); err != nil {
			return nil, err
		}
		after := c.Stats()
		reloads = append(reloads, millis(after.Lookup-before.Lookup+after.Load-before.Load))
	}
	slices.Sort(reloads)
	f.ReloadMillis = reloads[len(reloads)/2]
	return f, other.Close()
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
