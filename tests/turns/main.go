//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/quant"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == childFlag {
		if child(os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		return
	}
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "turns:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	s := setting{}
	var models []string
	flags := flag.NewFlagSet("turns", flag.ExitOnError)
	flags.StringVar(&s.Lib, "lib", os.Getenv("DORMOUSE_LLAMA_LIB"), "`folder` with llama.cpp's shared libraries")
	flags.Func("model", "GGUF `file`; may be given several times (default: $DORMOUSE_LLAMA_MODEL and $DORMOUSE_LLAMA_SMOL)", func(path string) error {
		models = append(models, path)
		return nil
	})
	flags.IntVar(&s.Turns, "turns", 30, "`N` turns")
	flags.IntVar(&s.Answer, "answer", 12, "answers of `N` tokens")
	flags.IntVar(&s.Batch, "batch", 16, "evaluate `N` tokens at a time")
	flags.IntVar(&s.Threads, "threads", 1, "`N` threads")
	seed := flags.Uint64("seed", 1, "of the moments at which processes are killed")
	flags.Parse(args) // ends the program if they are wrong
	if len(models) == 0 {
		for _, name := range []string{"DORMOUSE_LLAMA_MODEL", "DORMOUSE_LLAMA_SMOL"} {
			if path := os.Getenv(name); path != "" {
				models = append(models, path)
			}
		}
	}
	switch {
	case s.Lib == "" || len(models) == 0:
		return errors.New("no libraries or no model; run: bash tests/llama/fetch.sh && . .cache/llama/env.sh")
	case s.Turns < 1 || s.Turns > 40 || s.Answer < 1 || s.Answer > 30 || s.Batch < 1 || s.Batch > 512 || s.Threads < 1 || s.Threads > 512:
		return fmt.Errorf("-turns %d -answer %d -batch %d -threads %d: 1 to 40, 30, 512 and 512", s.Turns, s.Answer, s.Batch, s.Threads)
	}
	dir, err := os.MkdirTemp("", "turns")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i, path := range models {
		s.Model = path
		r, err := s.measure(filepath.Join(dir, fmt.Sprint(i)), *seed)
		r.print(out)
		if err == nil {
			err = r.wrong()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// report is what came of one model.
type report struct {
	setting
	alone *chat // never killed, no store
	rows  []line
}

// line is a chat whose processes were killed.
type line struct {
	codec  quant.Codec
	chat   *chat
	like   likeness
	damage int
	took   time.Duration
}

// measure has the chat without a store, with lossless rows, and with INT8.
func (s setting) measure(dir string, seed uint64) (r report, err error) {
	r.setting = s
	if r.alone, err = talk(order{setting: s}, nil); err != nil {
		return r, err
	}
	for i, x := range []line{{codec: quant.Raw}, {codec: quant.Q8_0}} {
		store := filepath.Join(dir, fmt.Sprint(i))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return r, err
		}
		o := order{setting: s, Store: store, Codec: x.codec}
		begun := time.Now()
		if x.chat, err = talk(o, rand.New(rand.NewPCG(seed, uint64(i)))); err != nil {
			return r, err
		}
		x.took = time.Since(begun)
		x.like = compare(r.alone, x.chat, s.Answer)
		if x.damage, err = damage(store); err != nil {
			return r, err
		}
		r.rows = append(r.rows, x)
	}
	return r, nil
}

// damage is what Verify finds in a store.
func damage(dir string) (n int, err error) {
	ctx := context.Background()
	store, err := db.Open(ctx, dir, db.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0, err
	}
	found, err := admin.VerifyStore(ctx, store, admin.VerifyOptions{})
	return len(found.Damage), errors.Join(err, store.Close())
}

// wrong says what must not be.
func (r *report) wrong() error {
	for _, x := range r.rows {
		switch l := x.like; {
		case x.codec == quant.Raw && (!l.wholeAsBefore || l.bits != l.logits):
			return fmt.Errorf("%v rows: %d of %d tokens are the same, and all bits of %d of %d predictions", x.codec, l.same, l.tokens, l.bits, l.logits)
		case len(x.chat.lost(r.Batch)) > 0:
			return fmt.Errorf("%v rows: turns (turn, tokens before, reused) that did not reuse what was acknowledged: %v", x.codec, x.chat.lost(r.Batch))
		case x.damage > 0:
			return fmt.Errorf("%v rows: %d damaged places in the store", x.codec, x.damage)
		}
	}
	return nil
}

func (r *report) print(out io.Writer) {
	if r.alone == nil {
		return
	}
	fmt.Fprintf(out, "%s: %d turns, %d tokens, batches of %d, %d threads\n", strings.TrimSuffix(filepath.Base(r.Model), ".gguf"), len(r.alone.turns), len(r.alone.tokens), r.Batch, r.Threads)
	for _, x := range r.rows {
		identical := "identical"
		if x.like.turn >= 0 {
			identical = fmt.Sprintf("the first other token is that of turn %d, token %d", x.like.turn+1, x.like.token+1)
		}
		fmt.Fprintf(out, "  %s: %d processes, %d killed, %d of them while they saved; %s: %d of %d tokens the same, every bit of %d of %d predictions; %v\n",
			x.codec, x.chat.processes, x.chat.kills, x.chat.again, identical, x.like.same, x.like.tokens, x.like.bits, x.like.logits, x.took.Round(time.Second))
		fmt.Fprint(out, "    turn that a process began with, tokens before it, of which reused:")
		for _, s := range x.chat.starts {
			fmt.Fprintf(out, " %d %d %d;", s.turn+1, s.history, s.reused)
		}
		fmt.Fprintln(out)
	}
}
