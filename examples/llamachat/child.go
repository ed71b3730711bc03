//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// child does one job. What goes wrong is part of the answer.
func child(in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return err
	}
	write := json.NewEncoder(out)
	a, done, err := do(j, func(s step) { write.Encode(answer{Step: &s}) })
	if err != nil {
		a = answer{Error: err.Error()}
	}
	if err := write.Encode(a); err != nil {
		return err
	}
	if j.Do == "first" {
		io.Copy(io.Discard, in) // to be killed here
	}
	done()
	return nil
}

// do does a job, and says how what it opened is closed.
func do(j job, say func(step)) (a answer, done func(), err error) {
	c, err := loadModel(j, say)
	if err != nil {
		return a, func() {}, err
	}
	ctx := context.Background()
	a.PromptTokens = len(c.prompt.Tokens)
	switch j.Do {
	case "tokens":
		a.Tokens = c.prompt.Tokens
	case "reference":
		err = c.reference(ctx, &a)
	case "first":
		err = c.first(ctx, &a)
	case "second":
		err = c.second(ctx, &a)
	}
	return a, c.close, err
}

// loaded is a loaded model with an empty context.
type loaded struct {
	j       job
	say     func(step)
	lib     *llama.Lib
	model   *llama.Model
	context *llama.Context
	prompt  kv.Prompt
	read    bool // the prompt is being evaluated
	turn    db.Observation
}

// processes are the names of the jobs in what is shown.
var processes = map[string]string{"reference": "without a store", "first": "to be killed", "second": "after the kill"}

// step says what the process begins, or how far it is.
func (c *loaded) step(what string, done, total int) {
	c.say(step{What: processes[c.j.Do] + ": " + what, Done: done, Total: total})
}

const reading, writing = "read the prompt", "write on"

func loadModel(j job, say func(step)) (*loaded, error) {
	lib, err := llama.Load(j.Lib)
	if err != nil {
		return nil, err
	}
	c := &loaded{j: j, say: say, lib: lib}
	c.step("load the model", 0, 0)
	if c.model, err = lib.LoadModel(j.Model, llama.ModelOptions{}); err != nil {
		return nil, err
	}
	ids, err := c.model.Tokenize(j.Prompt, true)
	if err != nil {
		return nil, err
	}
	c.prompt = kv.Tokens(ids...)
	if j.Do == "tokens" {
		return c, nil
	}
	if n := len(ids); n <= kv.OpeningTokens {
		return nil, fmt.Errorf("the prompt has %d tokens, and nothing of it would be reused: the last token is always evaluated, for its logits, and fewer than %d before it are not looked up: give more text",
			n, kv.OpeningTokens)
	}
	c.context, err = c.model.NewContext(c.contextOptions(len(ids) + j.Continue + j.Batch))
	return c, err
}

// contextOptions are those of a context with so many cells.
func (c *loaded) contextOptions(tokens int) llama.ContextOptions {
	j := c.j
	// llama.cpp's threads wait for one another many times a token. One that has to wait for a core makes a token take a
	// second instead of twenty milliseconds, so while one token is evaluated, one core is left to others.
	o := llama.ContextOptions{Tokens: tokens, Batch: j.Batch, MicroBatch: j.Batch,
		Threads: j.Threads, DecodeThreads: decodeThreads(j.Threads), FullWindow: true}
	if j.CacheQ8 {
		q8 := llama.Q8_0
		o.CacheK, o.CacheV = &q8, &q8
	}
	return o
}

func decodeThreads(threads int) int { return max(1, threads-1) }

// decode evaluates tokens of the prompt, and says how far that is.
func (c *loaded) decode(tokens []kv.Token, first, sequence int) error {
	err := c.context.Decode(tokens, first, sequence)
	if end, all := first+len(tokens), len(c.prompt.Tokens); c.read && err == nil {
		c.step(reading, end, all)
	}
	return err
}

func (c *loaded) close() {
	if c.context != nil {
		c.context.Close()
	}
	if c.model != nil {
		c.model.Close()
	}
}

// identity names the model file, and a file that remembers its hashes.
func (c *loaded) identity() llamacpp.Identity {
	return llamacpp.Identity{Path: c.j.Model, Memo: memo(c.j.Store)}
}

// attach opens the store and attaches the context to it: this and the three calls below are all that a program needs.
func (c *loaded) attach(ctx context.Context) (*db.Store, *llamacpp.Session, error) {
	store, err := db.Open(ctx, c.j.Store, db.Options{Codec: c.j.Codec, Observer: c.observe})
	if err != nil {
		return nil, nil, err
	}
	library, err := llamacpp.Bind(c.lib.Lookup)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	o := llamacpp.Options{
		Identity: c.identity(),
		Decode:   c.decode,
		Logger:   slog.New(slog.DiscardHandler),
	}
	s, err := llamacpp.Attach(ctx, store, library, c.context.Pointer(), o)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return store, s, nil
}

// observe is told what a turn took, when it has ended.
func (c *loaded) observe(o db.Observation) {
	o.Reason.Err = nil // it goes through a pipe
	c.turn = o
}

// begin says that the prompt is evaluated from a position on.
func (c *loaded) begin(from int) {
	c.read = true
	c.step(reading, from, len(c.prompt.Tokens))
}

// reference evaluates the prompt in the same batches, without a store: the last token by itself, because that is how it
// is evaluated after a restore, and sums are only the same to the last bit when they are added up in the same batches.
func (c *loaded) reference(_ context.Context, a *answer) error {
	start := time.Now()
	ids := c.prompt.Tokens
	last := len(ids) - 1
	c.begin(0)
	for from := 0; from < last; from += c.j.Batch {
		if err := c.decode(ids[from:min(last, from+c.j.Batch)], from, 0); err != nil {
			return err
		}
	}
	if err := c.decode(ids[last:], last, 0); err != nil {
		return err
	}
	best(c.context.Logits(-1))
	a.TTFT = since(start)
	return c.write(a)
}

// first reuses what the store has of the prompt, evaluates the rest, and saves its KV cache.
func (c *loaded) first(ctx context.Context, a *answer) error {
	library, err := llamacpp.Bind(c.lib.Lookup)
	if err != nil {
		return err
	}
	c.step("hash the model file, if that was not done before", 0, 0)
	if _, err := library.Describe(c.model.Pointer(), c.identity()); err != nil { // hashes: once for each file, like loading it
		return err
	}
	_, s, err := c.start(ctx, a)
	if err != nil {
		return err
	}
	start := time.Now()
	_, err = s.Save(ctx, c.prompt, 0)
	a.Save = since(start)
	return err
}

// second does the same, and writes on.
func (c *loaded) second(ctx context.Context, a *answer) error {
	store, s, err := c.start(ctx, a)
	if err != nil {
		return err
	}
	a.Mode = s.Mode().String()
	if a.Codecs, a.RecordBytes, err = stored(ctx, store, s.Model(), c.prompt); err != nil {
		return err
	}
	d := s.Model().Descriptor()
	for _, t := range d.Tensors {
		a.F16Bytes += int64(2 * t.Width * len(c.prompt.Tokens))
	}
	start := time.Now()
	if err := c.write(a); err != nil {
		return err
	}
	s.Observe(0, len(a.Tokens), time.Since(start))
	a.Turn = c.turn
	return store.Close()
}

// stored says in which codecs the rows of a prompt are stored, and how many bytes the records have: the store may hold other prompts and
// other models, and an earlier run may have chosen another codec.
func stored(ctx context.Context, store *db.Store, m *db.Model, prompt kv.Prompt) (codecs []string, bytes int64, err error) {
	x, err := m.Explain(ctx, prompt, db.MatchOptions{})
	if err != nil {
		return nil, 0, err
	}
	its := map[kv.Key]bool{}
	for _, b := range x.Blocks {
		its[b.Key] = true
	}
	for b, err := range store.Blocks(ctx) {
		if err != nil {
			return nil, 0, err
		}
		if b.Model != m.Fingerprint() || !its[b.Key] {
			continue
		}
		bytes += b.Bytes
		planes, err := db.Collect(admin.Planes(ctx, store, b))
		if err != nil {
			return nil, 0, err
		}
		for _, p := range planes {
			codecs = append(codecs, p.Codec)
		}
	}
	slices.Sort(codecs)
	return slices.Compact(codecs), bytes, nil
}

// start opens the store, restores what it can, evaluates the rest, the last token by itself, and finds the first token.
func (c *loaded) start(ctx context.Context, a *answer) (*db.Store, *llamacpp.Session, error) {
	start := time.Now()
	store, s, err := c.attach(ctx)
	if err != nil {
		return nil, nil, err
	}
	a.Open = since(start)
	got, err := s.Restore(ctx, c.prompt, 0)
	if err != nil {
		return nil, nil, err
	}
	a.Restore = since(start) - a.Open
	a.Reused, a.Reason = got.Tokens, got.Reason.String()
	c.begin(got.Tokens)
	last := len(c.prompt.Tokens) - 1
	if got.Tokens < last {
		if err := s.Prefill(ctx, c.prompt.Prefix(last), got.Tokens, 0); err != nil {
			return nil, nil, err
		}
	}
	if err := s.Prefill(ctx, c.prompt, last, 0); err != nil {
		return nil, nil, err
	}
	best(c.context.Logits(-1))
	a.TTFT = since(start)
	return store, s, nil
}

// write goes on greedily from the logits of the prompt's last token.
func (c *loaded) write(a *answer) error {
	c.read = false
	pos := len(c.prompt.Tokens)
	next := best(c.context.Logits(-1))
	for i := range c.j.Continue {
		c.step(writing, i, c.j.Continue)
		a.Tokens = append(a.Tokens, next)
		a.Text += c.model.Piece(next)
		if err := c.context.Decode([]int32{next}, pos, 0); err != nil {
			return err
		}
		pos++
		next = best(c.context.Logits(-1))
	}
	return nil
}

func best(logits []float32) int32 {
	at := 0
	for i, x := range logits {
		if x > logits[at] {
			at = i
		}
	}
	return int32(at)
}

func since(t time.Time) float64 { return millis(time.Since(t)) }

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
