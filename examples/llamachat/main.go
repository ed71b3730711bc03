//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/dormousekv/dormouse/examples/command"
	"github.com/dormousekv/dormouse/quant"
)

//go:embed prompt.txt
var defaultPrompt string

func main() {
	if len(os.Args) == 2 && os.Args[1] == childFlag {
		if err := child(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "llamachat:", err)
			os.Exit(1)
		}
		return
	}
	ok, err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if err == nil && !ok {
		os.Exit(1) // what is not as it must be was printed
	}
	command.End("llamachat", err)
}

// Bounds of the flags: llama.cpp reserves memory for whole batches, and aborts for more threads.
const (
	maxBatch    = 4096
	maxContinue = 1 << 16
	maxThreads  = 512
)

const whatToRun = `run "bash tests/llama/fetch.sh && . .cache/llama/env.sh" in the repository, which fetches libraries and a model and sets the variables, or name yours`

// options are the flags.
type options struct {
	job
	tokens, json bool
	chatOptions
}

// parse checks every flag before anything is started.
func parse(args []string, help io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("llamachat", flag.ContinueOnError)
	flags.StringVar(&o.Lib, "lib", os.Getenv("DORMOUSE_LLAMA_LIB"), "`folder` with llama.cpp's shared libraries (default: $DORMOUSE_LLAMA_LIB)")
	flags.StringVar(&o.Model, "model", os.Getenv("DORMOUSE_LLAMA_MODEL"), "GGUF `file` (default: $DORMOUSE_LLAMA_MODEL)")
	flags.StringVar(&o.Store, "store", "", "`folder` of the store: a new or empty one, or that of an earlier run (required)")
	file := flags.String("prompt-file", "", "text `file` with the prompt (default: a built-in one)")
	codec := flags.String("codec", "q8_0", "how new rows are stored: raw, q8_0 (INT8, not lossless), bytesplit or q4r (denser, loses more)")
	flags.BoolVar(&o.json, "json", false, "print one JSON object")
	flags.BoolVar(&o.tokens, "tokens", false, "print the prompt's token ids, as kvdump explain takes them, and do no more")
	flags.IntVar(&o.Continue, "continue", 64, "write `N` tokens behind the prompt")
	flags.IntVar(&o.Batch, "batch", 256, "evaluate `N` tokens at a time")
	flags.IntVar(&o.Threads, "threads", 0, fmt.Sprintf("`N` threads, one less for single tokens (0: as many as this process may use, here %d)", allThreads()))
	flags.BoolVar(&o.CacheQ8, "cache-q8", false, "let llama.cpp keep its cache in q8_0")
	only := o.chatOptions.flags(flags)
	if err := command.Parse(flags, args, help); err != nil {
		return o, err
	}
	if err := o.chatOptions.check(flags, only); err != nil {
		return o, err
	}
	switch {
	case o.Lib == "":
		return o, command.Wrong("-lib is not given, and DORMOUSE_LLAMA_LIB is not set: %s with -lib", whatToRun)
	case o.Model == "":
		return o, command.Wrong("-model is not given, and DORMOUSE_LLAMA_MODEL is not set: %s with -model", whatToRun)
	case o.Store == "" && !o.tokens:
		return o, command.Wrong("-store is not given: name a folder, such as -store /tmp/chat")
	case o.Continue < 1 || o.Continue > maxContinue:
		return o, command.Wrong("-continue %d: 1 to %d tokens", o.Continue, maxContinue)
	case o.Batch < 1 || o.Batch > maxBatch:
		return o, command.Wrong("-batch %d: 1 to %d tokens", o.Batch, maxBatch)
	case o.Threads < 0 || o.Threads > maxThreads:
		return o, command.Wrong("-threads %d: 1 to %d, or 0 for all", o.Threads, maxThreads)
	}
	for flag, path := range map[string]string{"-lib": o.Lib, "-model": o.Model} {
		if _, err := os.Stat(path); err != nil {
			return o, command.Wrong("%s: %w: %s with %s", flag, err, whatToRun, flag)
		}
	}
	if o.Threads == 0 {
		o.Threads = allThreads()
	}
	if o.Store != "" {
		o.Store = filepath.Clean(o.Store)
	}
	if o.Codec, err = quant.ParseCodec(*codec); err != nil {
		return o, command.Wrong("-codec: %w", err)
	}
	o.Prompt = strings.TrimSpace(defaultPrompt)
	if *file != "" {
		b, err := os.ReadFile(*file)
		if err != nil {
			return o, command.Wrong("-prompt-file: %w", err)
		}
		if o.Prompt = string(b); strings.TrimSpace(o.Prompt) == "" {
			return o, command.Wrong("-prompt-file: %s has no text", *file)
		}
	}
	return o, nil
}

// allThreads is as many threads as this process may use, at most those that llama.cpp takes.
func allThreads() int { return min(runtime.GOMAXPROCS(0), maxThreads) }

// run is the program; ok says whether all was as it must be. How far it is goes to side, unless -json was given.
func run(ctx context.Context, args []string, in io.Reader, out, side io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	shown := newProgress(side)
	show := shown.show
	if o.chat {
		return converse(ctx, o, in, out, show)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	if o.json || o.tokens {
		show = func(step) {}
	}
	if o.tokens {
		o.Do = "tokens"
		a, err := runChild(ctx, o.job, false, show)
		if err != nil {
			return false, err
		}
		return true, json.NewEncoder(out).Encode(a.Tokens)
	}
	folder, err := look(ctx, o.Store)
	if err != nil {
		return false, err
	}
	r, err := story(ctx, o.job, show)
	shown.end()
	if err != nil {
		return false, errors.Join(err, folder.leaveNothing(context.WithoutCancel(ctx)))
	}
	if o.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		err = enc.Encode(r)
	} else {
		r.print(out)
	}
	return r.Wrong == "", err
}
