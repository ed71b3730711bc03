package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/dormousekv/dormouse/examples/command"
	"github.com/dormousekv/dormouse/internal/tiny"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/quant"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if len(os.Args) == 2 && os.Args[1] == childFlag {
		err = child(ctx, os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	command.End("warmstart", err)
}

type options struct {
	json   bool
	print  bool
	dir    string
	seed   uint64
	prompt int
	steps  int
}

// maxSteps bounds -continue: each token takes some milliseconds, eight times, and more the more there are.
const maxSteps = 4096

// parse checks every flag before anything is started.
func parse(args []string, help io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("warmstart", flag.ContinueOnError)
	flags.BoolVar(&o.json, "json", false, "print one JSON object instead of text")
	flags.BoolVar(&o.print, "print-tokens", false, "print the prompt's token ids, as kvdump explain takes them, and do no more")
	flags.StringVar(&o.dir, "dir", "", "keep the stores in this new or empty `folder` (default: a temporary one, removed at the end)")
	flags.Uint64Var(&o.seed, "seed", 1, "of the model's random weights, a `number`")
	flags.IntVar(&o.prompt, "tokens", 0, "use only the first `N` tokens of the prompt, at least 64 (0: all)")
	flags.IntVar(&o.steps, "continue", 64, fmt.Sprintf("continue with `N` tokens, 16 to %d", maxSteps))
	if err := command.Parse(flags, args, help); err != nil {
		return o, err
	}
	switch {
	case o.prompt != 0 && o.prompt < 64:
		return o, command.Wrong("-tokens %d: expected at least 64, or 0 for all", o.prompt)
	case o.steps < 16 || o.steps > maxSteps:
		return o, command.Wrong("-continue %d: expected 16 to %d", o.steps, maxSteps)
	}
	return o, nil
}

// run is the whole demonstration. It returns an error if anything of what it shows does not hold.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	tokenizer := tiny.NewTokenizer()
	if o.print {
		return json.NewEncoder(out).Encode(readPrompt(tokenizer, o.prompt))
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "dormouse-warmstart-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	} else if err := command.NewFolder("-dir", o.dir, "a store from an earlier run would make the cold start a warm one"); err != nil {
		return err
	}

	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	if o.json {
		say = func(string, ...any) {}
	}
	result, err := perform(ctx, o, say)
	if err != nil {
		return err
	}
	if o.json {
		if err := json.NewEncoder(out).Encode(result.report(tokenizer)); err != nil {
			return err
		}
	} else {
		say("")
		result.table(out)
		say("\nMarta: %s", strings.TrimSpace(userText))
		say("")
		for _, run := range []struct {
			name string
			answer
		}{{"never killed", result.reference}, {"killed, raw", result.raw.warm}, {"one row spoiled", result.control}} {
			say("Hazel (%s):%s …", run.name, tokenizer.Decode(run.Best[:min(16, len(run.Best))]))
		}
	}
	if bad := result.failures(); len(bad) > 0 {
		return errors.New(strings.Join(bad, "\n           "))
	}
	return nil
}

// perform runs one process after the other: they never share the processors, so their times can be compared.
func perform(ctx context.Context, o options, say func(string, ...any)) (*outcome, error) {
	say("A small transformer reads a chat prompt, and its process is killed. Another process goes on where it was.\n" +
		"Its weights are random, nobody trained it: the words that it writes have no sense. Its work is real.\n")
	result := &outcome{seed: o.seed}
	work := job{Seed: o.seed, Prompt: o.prompt, Steps: o.steps}
	var err error
	if result.reference, err = runJob(ctx, work); err != nil {
		return nil, err
	}
	say("reference  no store, never killed: reads %d tokens and writes %d", result.reference.PromptTokens, o.steps)
	work.Follow = result.reference.Best // same tokens in, so that every step can be compared

	for _, m := range []*measured{&result.raw, &result.q8} {
		m.codec = quant.Raw
		if m == &result.q8 {
			m.codec = quant.Q8_0
		}
		work.Dir, work.Codec = filepath.Join(o.dir, m.codec.String()), m.codec
		var end string
		if m.cold, end, err = runAndKill(ctx, work); err != nil {
			return nil, err
		}
		say("%-10s first run: reads %d tokens, saves their rows; %s", m.codec, m.cold.PromptTokens-m.cold.Reused, end)
		next := work
		if m.codec == quant.Raw {
			next.Follow = nil // identical means: by itself
		}
		if m.warm, err = runJob(ctx, next); err != nil {
			return nil, err
		}
		say("%-10s second run: restores %d tokens, computes %d, writes %d", m.codec, m.warm.Reused,
			m.warm.PromptTokens-m.warm.Reused, o.steps)
		if m.diskBytes, err = diskBytes(work.Dir); err != nil {
			return nil, err
		}
	}

	spoiled := job{Seed: o.seed, Prompt: o.prompt, Steps: o.steps, Dir: filepath.Join(o.dir, quant.Raw.String()), BreakRow: true}
	if result.control, err = runJob(ctx, spoiled); err != nil {
		return nil, err
	}
	say("control    raw again, but in memory the bits of one K row of layer 0 are inverted after the restore")
	return result, nil
}

// diskBytes is what the files in dir occupy, preallocated room included.
func diskBytes(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := vfs.OS.Stat(path)
		if err == nil && info.Regular {
			total += info.Allocated
		}
		return err
	})
	return total, err
}
