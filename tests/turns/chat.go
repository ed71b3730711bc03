//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/logits"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// childFlag, as the only argument, makes this program one process of the chat. Its order comes through a pipe.
const childFlag = "-child"

// setting is what all processes of a chat have in common.
type setting struct {
	Lib, Model     string
	Turns, Answer  int // turns of the whole chat; tokens of an answer
	Batch, Threads int
}

// order is what one process does.
type order struct {
	setting
	Store   string // empty: none
	Codec   quant.Codec
	First   int        // the turn to begin with
	Count   int        // and how many
	History []kv.Token // of the turns before
	Leave   bool       // without closing the store
	Unified bool       // two sequences share one buffer: states are saved in part and restored in pieces
}

// step is one of the things that a process says while it is at work.
type step struct {
	Do     string     // attached, restored, evaluated, token, saving, turn
	Turn   int        // done
	Reused int        // restored, and of a turn that began so; -1: the context had it
	Reason string     // why not more
	Tokens []kv.Token // of the turn: question and answer
	Sums   []uint64   // of the logits, by token of the answer
	Saved  int64      // bytes
	Error  string
}

// child does one order, and says each step when it is done.
func child(in io.Reader, out io.Writer) error {
	var o order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	say := json.NewEncoder(out)
	err := o.run(context.Background(), func(s step) error { return say.Encode(s) })
	if err != nil {
		say.Encode(step{Error: err.Error()})
	}
	return err
}

func (o *order) run(ctx context.Context, say func(step) error) error {
	lib, err := llama.Load(o.Lib)
	if err != nil {
		return err
	}
	api, err := llamacpp.Bind(lib.Lookup)
	if err != nil {
		return err
	}
	model, err := lib.LoadModel(o.Model, llama.ModelOptions{CPUOnly: true})
	if err != nil {
		return err
	}
	defer model.Close()
	options := llama.ContextOptions{Tokens: 2048, Batch: o.Batch, MicroBatch: o.Batch, Threads: o.Threads, DecodeThreads: 1, FullWindow: true}
	if o.Unified {
		options.Sequences, options.Unified = 2, true
	}
	c, err := model.NewContext(options)
	if err != nil {
		return err
	}
	defer c.Close()
	memory := api.GetMemory(c.Pointer())

	var session *llamacpp.Session // nil: no store
	if o.Store != "" {
		store, err := db.Open(ctx, o.Store, db.Options{Codec: o.Codec, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		if !o.Leave {
			defer store.Close()
		}
		session, err = llamacpp.Attach(ctx, store, api, c.Pointer(), llamacpp.Options{
			Identity: llamacpp.Identity{Path: o.Model, Memo: o.Store + ".memo"},
			Decode:   c.Decode, Align: o.Batch, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
	}
	if err := say(step{Do: "attached"}); err != nil {
		return err
	}

	tokens, at := o.History, 0 // at: what the context holds
	for turn := o.First; turn < o.First+o.Count; turn++ {
		begun := len(tokens)
		ids, err := model.Tokenize(question(turn), turn == 0)
		if err != nil {
			return err
		}
		tokens = append(tokens, ids...)
		prompt := kv.Tokens(tokens...)
		done := step{Do: "turn", Turn: turn, Reused: -1}
		if at = at / o.Batch * o.Batch; at > 0 {
			api.SequenceRemove(memory, 0, int32(at), -1)
		} else if session != nil {
			got, err := session.Restore(ctx, prompt, 0)
			if err != nil {
				return fmt.Errorf("restore: %w", err)
			}
			at, done.Reused, done.Reason = got.Tokens, got.Tokens, got.Reason.String()
			if err := say(step{Do: "restored", Turn: turn}); err != nil {
				return err
			}
		}
		if session != nil {
			err = session.Prefill(ctx, prompt, at, 0)
		} else {
			err = o.evaluate(c, tokens, at)
		}
		if err != nil {
			return fmt.Errorf("evaluate: %w", err)
		}
		if err := say(step{Do: "evaluated", Turn: turn}); err != nil {
			return err
		}
		for range o.Answer {
			l := c.Logits(-1)
			done.Sums = append(done.Sums, sum(l))
			next := kv.Token(logits.Best(l))
			if err := c.Decode([]kv.Token{next}, len(tokens), 0); err != nil {
				return err
			}
			tokens = append(tokens, next)
			if err := say(step{Do: "token", Turn: turn}); err != nil {
				return err
			}
		}
		at = len(tokens)
		if session != nil {
			if err := say(step{Do: "saving", Turn: turn}); err != nil {
				return err
			}
			put, err := session.Save(ctx, kv.Tokens(tokens...), 0)
			if err != nil {
				return fmt.Errorf("save: %w", err)
			}
			done.Saved = put.Bytes
		}
		done.Tokens = tokens[begun:]
		if err := say(done); err != nil {
			return err
		}
	}
	return nil
}

// evaluate is Prefill without a session: batches end at multiples of their size.
func (o *order) evaluate(c *llama.Context, tokens []kv.Token, from int) error {
	for from < len(tokens) {
		end := min(len(tokens), (from/o.Batch+1)*o.Batch)
		if err := c.Decode(tokens[from:end], from, 0); err != nil {
			return err
		}
		from = end
	}
	return nil
}

// sum is a checksum of every bit.
func sum(l []float32) uint64 {
	b := make([]byte, 4*len(l))
	for i, x := range l {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(x))
	}
	return xxhash.Sum64(b)
}

// question is what a turn begins with.
func question(turn int) string {
	s := "\nQuestion: " + questions[turn%len(questions)] + "\nAnswer:"
	if turn == 0 {
		s = "This is a talk between a child who asks and a patient teacher who knows the world well, its animals, its weather and its old stories, " +
			"and who answers each question in one or two plain sentences, without lists.\n" + s
	}
	return s
}

var questions = []string{
	"Why is the sky blue?", "What do hedgehogs eat?", "Who was Isaac Newton?", "How do bees make honey?", "Why does ice float on water?",
	"Where do swallows go in winter?", "What is a volcano?", "How far away is the moon?", "Why do leaves turn red?", "Do fish sleep?",
	"Who built the pyramids?", "What makes thunder so loud?", "How do cats see at night?", "Why is the sea salty?", "What is bread made of?",
	"How old can a tree become?", "Who wrote about Don Quixote?", "What do dormice do all winter?", "Why do we dream?", "How does a sail work?",
	"What is the longest river?", "Why do onions make us cry?", "How is glass made?", "Which bird cannot fly?", "Why is snow white?",
	"What did people do before clocks?", "How do spiders make webs?", "What is inside the earth?", "Why do dogs bark?", "Will you tell me a story tomorrow?",
}
