//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// subcommand is one of the things that the program tries.
type subcommand struct {
	name string
	run  func(ctx context.Context, r *rig) (any, error)
}

var subcommands = []subcommand{{"measure", measure}, {"twenty", twenty}, {"clients", clients}, {"load", load}, {"faults", faults}, {"starts", starts}, {"overhead", overhead}}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "llamaserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, say io.Writer) (err error) {
	what := subcommands[0]
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		i := slices.IndexFunc(subcommands, func(c subcommand) bool { return c.name == args[0] })
		if i < 0 {
			return fmt.Errorf("%q: expected measure, twenty, clients, load, faults, starts, overhead, or nothing, which is measure", args[0])
		}
		what, args = subcommands[i], args[1:]
	}
	s := settings{}
	flags := flag.NewFlagSet(what.name, flag.ContinueOnError)
	flags.SetOutput(say)
	asJSON := flags.Bool("json", false, "print one object, on the last line, and nothing else")
	flags.StringVar(&s.model, "model", "", "GGUF `file` (default: Gemma 3 270M; of load, faults and starts the tiny one of testdata)")
	flags.IntVar(&s.rounds, "rounds", 1, "measure: `N` prompts, of which the medians are reported")
	flags.DurationVar(&s.time, "for", time.Minute, "load: how long")
	times := 100
	if what.name == "overhead" {
		times = 30
	}
	flags.IntVar(&s.times, "n", times, "starts: how often everything is started anew, in each way; overhead: `N` pairs")
	flags.StringVar(&s.only, "only", "", "starts: only ways whose names have this `text`")
	flags.IntVar(&s.tokens, "tokens", 20000, "overhead: `N` tokens that lie in the slot")
	flags.BoolVar(&s.quick, "quick", false, "fewer of everything, and the tiny model, as the tests have it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || s.rounds < 1 || s.rounds > 100 || s.time <= 0 || s.times < 1 || s.tokens < 100 {
		return fmt.Errorf("%q: expected -rounds 1 to 100, -for and -n above 0, -tokens 100 or more, and nothing else", args)
	}
	// Servers end connections that are kept, also while a request is on its way on them.
	transport.DisableKeepAlives = true
	r, err := newRig(s, say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.prepare(ctx, slices.Contains([]string{"load", "faults", "starts"}, what.name)); err != nil {
		return err
	}
	report, err := what.run(ctx, r)
	if err != nil {
		fmt.Fprintln(say, r.lastWords())
	}
	if report != nil {
		enc := json.NewEncoder(out)
		if !*asJSON {
			enc.SetIndent("", "  ")
		}
		err = errors.Join(err, enc.Encode(report))
	}
	return err
}
