package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/dormousekv/dormouse/internal/tiny"
	"github.com/dormousekv/dormouse/quant"
)

// job is what a child process is asked to do, a line of JSON on its standard input.
type job struct {
	Dir        string      // of the store; empty: work without one
	Codec      quant.Codec // for what is saved
	Seed       uint64      // of the weights
	Prompt     int         // tokens; 0: all of them
	Steps      int         // tokens to continue with
	SaveAndDie bool        // save the prompt, say so, and wait to be killed
	Follow     []int32     // go on with these tokens, whatever the model likes best
	BreakRow   bool        // after the restore, spoil one row of the KV cache
}

// answer is what the child says, a line of JSON on its standard output.
type answer struct {
	PromptTokens int
	Reused       int           // tokens that came from the store
	Open         time.Duration // opening the store
	Restore      time.Duration // finding the prefix in it and filling the KV cache
	Compute      time.Duration // the rest of the prompt, up to the first new token
	Best         []int32       // the likeliest next token, step by step
	Logits       string        // hash of all logits of all steps, bit by bit
	F16Bytes     int64         // of the prompt's rows in memory
	SavedBytes   int64         // of the records that hold them on disk
}

// firstToken is the time to the first token. Making the weights is not in it, warm or cold.
func (a answer) firstToken() time.Duration { return a.Open + a.Restore + a.Compute }

// child does the job that it reads from in.
func child(ctx context.Context, in io.Reader, out io.Writer) error {
	read, write := json.NewDecoder(in), json.NewEncoder(out)
	var j job
	if err := read.Decode(&j); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	a, err := j.run(ctx, func(a answer) error {
		if err := write.Encode(a); err != nil {
			return err
		}
		// Nothing more is ever sent, so this waits: for a SIGKILL, or for the parent's death, which closes the pipe.
		read.Decode(&struct{}{})
		return errors.New("the parent process is gone")
	})
	if err != nil {
		return err
	}
	return write.Encode(a)
}

// run reads the prompt and continues it. Cold and warm starts are the same code: what the store does not have is
// computed. saved is called when the prompt is in the store.
func (j job) run(ctx context.Context, saved func(answer) error) (a answer, err error) {
	tokenizer := tiny.NewTokenizer()
	model, err := tiny.New(tiny.Default(tokenizer), j.Seed)
	if err != nil {
		return a, err
	}
	prompt := readPrompt(tokenizer, j.Prompt)
	cache := model.NewCache(len(prompt) + j.Steps)
	a.PromptTokens, a.F16Bytes = len(prompt), int64(len(prompt)*cache.TokenBytes())
	if j.Dir == "" {
		logits := model.Forward(cache, 0, prompt)
		a.Best, a.Logits = j.goOn(model, cache, len(prompt), logits)
		return a, nil
	}

	start := time.Now()
	s, err := openStore(ctx, j.Dir, describe(model, tokenizer))
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	opened := time.Now()
	match, reused, err := s.restore(ctx, prompt, cache)
	if err != nil {
		return a, err
	}
	defer match.Close()
	restored := time.Now()
	if j.BreakRow {
		breakRow(cache, reused/2)
	}
	logits := model.Forward(cache, reused, prompt[reused:])
	first := best(logits)
	computed := time.Now()

	a.Reused = reused
	a.Open, a.Restore, a.Compute = opened.Sub(start), restored.Sub(opened), computed.Sub(restored)
	if j.SaveAndDie {
		put, err := save(ctx, match, prompt, cache, j.Codec)
		if err != nil {
			return a, err
		}
		a.Best, a.SavedBytes = []int32{first}, put.Bytes
		return a, saved(a)
	}
	a.Best, a.Logits = j.goOn(model, cache, len(prompt), logits)
	return a, nil
}

// goOn continues behind position from with the likeliest token, again and again, or with those of j.Follow.
func (j job) goOn(m *tiny.Model, c *tiny.Cache, from int, logits []float32) (likeliest []int32, hash string) {
	sum := sha256.New()
	for i := range j.Steps {
		for _, v := range logits {
			sum.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
		}
		next := best(logits)
		likeliest = append(likeliest, next)
		if i < len(j.Follow) {
			next = j.Follow[i]
		}
		if i < j.Steps-1 {
			logits = m.Forward(c, from+i, []int32{next})
		}
	}
	return likeliest, hex.EncodeToString(sum.Sum(nil))
}

// best is the token with the highest score, the first of equals.
func best(logits []float32) int32 {
	top := 0
	for i, v := range logits {
		if v > logits[top] {
			top = i
		}
	}
	return int32(top)
}

// breakRow inverts the bits of one row: layer 0's K at one position.
func breakRow(c *tiny.Cache, pos int) {
	row := c.K[0][pos*c.RowBytes : (pos+1)*c.RowBytes]
	for i := range row {
		row[i] ^= 0xff
	}
}
