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
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, say io.Writer) (err error) {
	flags := flag.NewFlagSet("clients", flag.ContinueOnError)
	flags.SetOutput(say)
	asJSON := flags.Bool("json", false, "a JSON object a line: one a client, and the starts on the last")
	asTable := flags.Bool("table", false, "a table in Markdown (default)")
	only := flags.String("only", "", "this client alone, or some, with commas between: `NAME`")
	starts := flags.Int("starts", 100, "start front and server `N` times, and look at the first request of each")
	file := flags.String("model", "", "GGUF `file` of a real model (default: one with random layers, and the tokenizer of Qwen2.5-Coder)")
	strict := flags.Bool("strict", false, "fail if a first request after a start is no hit, or a turn that goes on reuses less than half")
	keep := flags.String("keep", "", "leave all that was made in `DIR`: logs, and what clients sent")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *starts < 0 || *asJSON && *asTable {
		return fmt.Errorf("%q: expected -starts 0 or more, one of -json and -table, and nothing else", args)
	}
	wanted, err := choose(*only)
	if err != nil {
		return err
	}
	r := &rig{say: say, keep: *keep != "", skipped: reasons{}}
	if *only == "" {
		for name, why := range unavailable {
			r.skip(name, why)
		}
	}
	if err := r.prepare(ctx, *file, *keep); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()

	var rows []*row
	var failed error
	for _, c := range wanted {
		if why := missing(c); why != "" {
			r.skip(c.name, why)
			continue
		}
		row, err := r.measure(ctx, c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.skip(c.name, "it failed: "+err.Error())
			failed = errors.Join(failed, fmt.Errorf("%s: %w", c.name, err))
			continue
		}
		rows = append(rows, row)
		if *strict && 2*row.ResumedTokens < row.ResumedPrompt {
			failed = errors.Join(failed, fmt.Errorf("%s: going on after a kill, %d of %d tokens were reused: %s", c.name, row.ResumedTokens, row.ResumedPrompt, row.Said.Resumed))
		}
		if *asJSON {
			if err := json.NewEncoder(out).Encode(row); err != nil {
				return err
			}
		}
	}
	l := last{Starts: *starts, Clients: len(rows), Skipped: r.skipped}
	if len(rows) == 0 {
		return errors.Join(failed, fmt.Errorf("no client could be had: run tests/clients/fetch.sh: %v", r.skipped))
	}
	if l.FirstHits, l.Others, err = r.starts(ctx, rows[0].resumed, *starts); err != nil {
		return errors.Join(failed, err)
	}
	if *strict && l.FirstHits < *starts {
		failed = errors.Join(failed, fmt.Errorf("of %d first requests after a start %d were hits: %v", *starts, l.FirstHits, l.Others))
	}
	if *asJSON {
		return errors.Join(failed, json.NewEncoder(out).Encode(l))
	}
	return errors.Join(failed, printTable(out, rows, l))
}

// choose gives the clients with these names, or all.
func choose(only string) ([]client, error) {
	if only == "" {
		return clients, nil
	}
	var chosen []client
	for _, name := range strings.Split(only, ",") {
		i := slices.IndexFunc(clients, func(c client) bool { return c.name == name })
		if i < 0 {
			var names []string
			for _, c := range clients {
				names = append(names, c.name)
			}
			return nil, fmt.Errorf("-only %s: there are %s", name, strings.Join(names, ", "))
		}
		chosen = append(chosen, clients[i])
	}
	return chosen, nil
}

// missing says why a client is not here.
func missing(c client) string {
	if _, err := os.Stat(filepath.Join(cache, "bin", c.program)); err == nil {
		return ""
	}
	if why, err := os.ReadFile(filepath.Join(cache, c.lock()+".skipped")); err == nil {
		return strings.TrimSpace(string(why))
	}
	return "not fetched: tests/clients/fetch.sh " + c.lock()
}
