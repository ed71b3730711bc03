//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo))

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/internal/logits"
)

// childFlag, as the only argument, makes this program do the job that it reads from standard input.
const childFlag = "-child"

// job is what one process does with one release.
type job struct {
	Lib    string   // folder of the libraries
	Dir    string   // where it keeps its stores, one for each case
	Other  string   // where another release kept them; empty: evaluate and save
	Models []string // GGUF files besides those that are generated
}

// answer is what it found out.
type answer struct {
	Error   string // the loader's refusal, or what went wrong
	Version string
	Layout  string
	Cases   []result
}

// result is one model with one kind of cache.
type result struct {
	Name        string
	Mode        string
	Fingerprint string
	Rows        string          // hash of the rows of the prompt, as they come out of the store
	Restored    int             // tokens, of those that were saved
	Saved       int             // tokens
	Like        logits.Likeness // what follows the restored tokens, beside the run that was not interrupted
}

// whole reports whether all was restored and nothing changed.
func (r result) whole() bool { return r.Restored == r.Saved && r.Like.SameBits == r.Like.Tokens }

func main() {
	if len(os.Args) == 2 && os.Args[1] == childFlag {
		var j job
		err := json.NewDecoder(os.Stdin).Decode(&j)
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(run(j))
		}
		exit(err)
		return
	}
	exit(table(os.Args[1:]))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "releases:", err)
		os.Exit(1)
	}
}

// release is a row of the table.
type release struct {
	dir      string
	own      answer // evaluated, saved, restored
	of       answer // restored what the first release saved
	atFirsts answer // the first release restored what this one saved
}

func table(args []string) error {
	var models []string
	flags := flag.NewFlagSet("releases", flag.ExitOnError)
	flags.Func("model", "GGUF file of a real model; may be given several times", func(path string) error {
		models = append(models, path)
		_, err := os.Stat(path)
		return err
	})
	flags.Parse(args) // ends the program if they are wrong
	if flags.NArg() == 0 {
		return errors.New("no folder of libraries is given; tests/llama/fetch.sh and tests/llama/releases.sh fetch some")
	}
	dir, err := os.MkdirTemp("", "releases")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var all []*release
	for _, lib := range flags.Args() {
		if lib, err = filepath.Abs(lib); err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(r *release) bool { return r.dir == lib }) {
			continue // the first was named again by a pattern
		}
		i := len(all)
		r := &release{dir: lib}
		all = append(all, r)
		store := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
		fmt.Fprintf(os.Stderr, "%s\n", filepath.Base(lib))
		r.own = child(job{Lib: lib, Dir: store(i), Models: models})
		if r.own.Error != "" || i == 0 {
			continue
		}
		r.of = child(job{Lib: lib, Dir: store(i), Other: store(0), Models: models})
		r.atFirsts = child(job{Lib: all[0].dir, Dir: store(0), Other: store(i), Models: models})
	}
	if all[0].own.Error != "" {
		return fmt.Errorf("%s: %s", all[0].dir, all[0].own.Error)
	}
	return print(all)
}

// child runs a job in a process of its own, with the folder's own loader and preloaded library where it has them.
func child(j job) (a answer) {
	self, err := os.Executable()
	if err != nil {
		return answer{Error: err.Error()}
	}
	args := []string{self, childFlag}
	if loaders, _ := filepath.Glob(filepath.Join(j.Lib, "ld-linux-*.so.*")); len(loaders) > 0 {
		args = append([]string{loaders[0], "--library-path", j.Lib}, args...)
	}
	in, err := json.Marshal(j)
	if err != nil {
		return answer{Error: err.Error()}
	}
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(string(in))
	if preload, err := os.ReadFile(filepath.Join(j.Lib, "preload")); err == nil {
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+strings.TrimSpace(string(preload)))
	}
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		first, _, _ := strings.Cut(complaint.String(), "\n")
		return answer{Error: fmt.Sprintf("%v: %s", err, first)}
	}
	if err := json.Unmarshal(out, &a); err != nil {
		return answer{Error: err.Error()}
	}
	return a
}
