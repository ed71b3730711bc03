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
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// cache is where fetch.sh puts clients, and this program its model.
const cache = ".cache/clients"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
}

// last is the last line.
type last struct {
	Starts    int            `json:"starts"`
	FirstHits int            `json:"first_hits"`
	Others    map[string]int `json:"first_others,omitempty"` // what X-Dormouse said where it was no hit
	Clients   int            `json:"clients"`
	Skipped   reasons        `json:"skipped"`
}

type reasons map[string]string

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

// rig has what is the same for all clients.
type rig struct {
	programs
	say     io.Writer
	dir     string
	keep    bool
	skipped reasons
	watch   *watch
	takes   string // what dormouse serve says of its flags
	stacks  []*stack
}

func (r *rig) note(format string, args ...any) {
	fmt.Fprintf(r.say, "clients: "+format+"\n", args...)
}

func (r *rig) skip(name, why string) {
	r.note("SKIPPED: %s: %s", name, why)
	r.skipped[name] = why
}

// prepare builds the command, makes the model and opens the proxy.
func (r *rig) prepare(ctx context.Context, model, keep string) (err error) {
	if _, err := os.Stat("tests/clients/lock"); err != nil {
		return fmt.Errorf("%w: run this from the project's root", err)
	}
	if r.server = os.Getenv("DORMOUSE_LLAMA_SERVER"); r.server == "" {
		return errors.New("DORMOUSE_LLAMA_SERVER is not set: bash tests/llama/server.sh && . .cache/llama/env.sh")
	}
	r.flags = []string{"-n", "32"} // an answer need not be long
	if r.model = model; model == "" {
		r.model = filepath.Join(cache, "random-qwen.gguf")
		if _, err := os.Stat(r.model); err != nil {
			if err := r.makeModel(ctx); err != nil {
				return err
			}
		}
	}
	if r.model, err = filepath.Abs(r.model); err != nil {
		return err
	}
	if r.dir = keep; keep != "" {
		if r.dir, err = filepath.Abs(keep); err == nil {
			err = os.Mkdir(r.dir, 0o700)
		}
	} else {
		r.dir, err = os.MkdirTemp("", "dormouse-clients-")
	}
	if err != nil {
		return err
	}
	r.dormouse = filepath.Join(r.dir, "dormouse")
	if said, err := exec.CommandContext(ctx, "go", "build", "-o", r.dormouse, "./tools/dormouse").CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./tools/dormouse: %w: %s", err, said)
	}
	help, err := exec.CommandContext(ctx, r.dormouse, "serve", "--help").CombinedOutput()
	if err != nil {
		return fmt.Errorf("dormouse serve --help: %w: %s", err, help)
	}
	r.takes = string(help)
	r.watch, err = newWatch()
	return err
}

// makeModel makes the model with random layers out of the real one's tokenizer.
func (r *rig) makeModel(ctx context.Context) error {
	r.note("bash tests/llama/qwen.sh, for its tokenizer")
	cmd := exec.CommandContext(ctx, "bash", "tests/llama/qwen.sh")
	cmd.Stderr = r.say
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("tests/llama/qwen.sh: %w", err)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	return writeModel(r.model, strings.TrimSpace(string(out)))
}

func (r *rig) close() error {
	if r.watch != nil {
		r.watch.close()
	}
	var err error
	for _, s := range r.stacks {
		err = errors.Join(err, s.kill(context.Background()))
	}
	if r.keep {
		return err
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}
