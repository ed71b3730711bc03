//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

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

type reasons map[string]string

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

// cache is where fetch.sh puts clients, and this program its model.
const cache = ".cache/clients"
