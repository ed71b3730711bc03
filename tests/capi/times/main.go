//go:build linux && !android

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	var err error
	if len(os.Args) > 1 && os.Args[1] == doorFlag {
		err = door(context.Background(), os.Args[2:], os.Stdin, os.Stdout)
	} else if len(os.Args) > 2 && os.Args[1] == rowsFlag {
		err = rowsDoor(context.Background(), os.Args[2], os.Stdin, os.Stdout)
	} else {
		err = run(os.Args[1:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "times:", err)
		os.Exit(1)
	}
}

// turn is what a door says of one round, in milliseconds.
type turn struct {
	Reused  int       `json:"reused"`
	Best    int32     `json:"best"`
	Open    float64   `json:"open"`
	Attach  float64   `json:"attach"`
	First   float64   `json:"first"`   // from before the store is opened to the first token
	Restore []float64 `json:"restore"` // the first, and four more in the same session
}

// process is a door that waits to be asked.
type process struct {
	name  string
	ask   io.Writer
	said  *bufio.Scanner
	cmd   *exec.Cmd
	turns []turn
}

func run(args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("times", flag.ExitOnError)
	lib := flags.String("lib", os.Getenv("DORMOUSE_LLAMA_LIB"), "`folder` with llama.cpp's shared libraries")
	model := flags.String("model", os.Getenv("DORMOUSE_LLAMA_MODEL"), "GGUF `file`")
	prompt := flags.String("prompt", "examples/llamachat/prompt.txt", "text `file`")
	cpp := flags.String("cpp", "", "llama_times, built from llama_times.cpp")
	python := flags.String("python", "", "`command` that runs llama_times.py")
	java := flags.String("java", "", "`command` that runs Door.java")
	rows := flags.Bool("rows", false, "rows are compared in place of llama.cpp: -rows-c, -rows-python and -rows-java are the doors")
	rowsC := flags.String("rows-c", "", "rows_times, built from rows_times.c")
	rowsPython := flags.String("rows-python", "", "`command` that runs rows_times.py")
	rowsJava := flags.String("rows-java", "", "`command` that runs RowsDoor.java")
	rounds := flags.Int("rounds", 15, "`N` rounds")
	threads := flags.Int("threads", 1, "`N` threads")
	flags.Parse(args) // ends the program if they are wrong
	if *rows {
		return runRows([]command{{"C", strings.Fields(*rowsC)}, {"Python", strings.Fields(*rowsPython)}, {"Java", strings.Fields(*rowsJava)}}, *rounds, out)
	}
	if *lib == "" || *model == "" {
		return errors.New("no libraries or no model; run: bash tests/llama/fetch.sh && . .cache/llama/env.sh")
	}
	dir, err := os.MkdirTemp("", "dormouse-times-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	text, err := os.ReadFile(*prompt)
	if err != nil {
		return err
	}
	common := []string{filepath.Join(dir, "store"), *model, *lib, filepath.Join(dir, "tokens"), strconv.Itoa(*threads)}
	if err := prepare(context.Background(), common, string(text)); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return byTurns(out, *rounds, common, []command{{"Go", []string{self, doorFlag}}, {"C++", strings.Fields(*cpp)}, {"Python", strings.Fields(*python)}, {"Java", strings.Fields(*java)}})
}

func start(name string, command []string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(command[0], command[1:]...)}
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.ask, p.said = in, bufio.NewScanner(out)
	return p, p.cmd.Start()
}

func (p *process) end() {
	p.ask.(io.Closer).Close()
	p.cmd.Wait()
}

func (p *process) turn(counts bool) error {
	var t turn
	if _, err := fmt.Fprintln(p.ask); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	if !p.said.Scan() {
		return fmt.Errorf("%s: the process ended", p.name)
	}
	if err := json.Unmarshal(p.said.Bytes(), &t); err != nil {
		return fmt.Errorf("%s said %q: %w", p.name, p.said.Text(), err)
	}
	if counts {
		p.turns = append(p.turns, t)
	}
	return nil
}

// report prints the table.
func report(out io.Writer, doors []*process) error {
	ref := doors[0].turns
	fmt.Fprintf(out, "%d tokens reused, %d rounds; medians in ms; in brackets the ratio to Go: its median, and the interval that holds it with 95 %%\n", ref[0].Reused, len(ref))
	fmt.Fprintf(out, "%-8s %8s %8s  %-34s  %s\n", "", "open", "attach", "restore", "open to first token")
	for _, d := range doors {
		column := func(of func(turn) float64) []float64 {
			var v []float64
			for _, t := range d.turns {
				v = append(v, of(t))
			}
			return v
		}
		beside := func(of func(turn) float64) string {
			var ratios []float64
			for i, v := range column(of) {
				ratios = append(ratios, v/of(ref[i]))
			}
			slices.Sort(ratios)
			k := interval(len(ratios))
			return fmt.Sprintf("%8.2f (%.3f, %.3f to %.3f)", median(column(of)), median(ratios), ratios[k], ratios[len(ratios)-1-k])
		}
		for i, t := range d.turns {
			if t.Reused != ref[0].Reused || t.Best != ref[0].Best || t.Reused == 0 {
				return fmt.Errorf("%s, round %d: %d tokens reused and token %d, where Go has %d and %d", d.name, i, t.Reused, t.Best, ref[0].Reused, ref[0].Best)
			}
		}
		fmt.Fprintf(out, "%-8s %8.2f %8.2f  %-34s  %s\n", d.name, median(column(func(t turn) float64 { return t.Open })), median(column(func(t turn) float64 { return t.Attach })),
			beside(func(t turn) float64 { return median(t.Restore) }), beside(func(t turn) float64 { return t.First }))
	}
	return nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// interval is which of n sorted values, from either end, bounds their median with 95 %: less than 2.5 % of n fair coins show as few heads.
func interval(n int) (k int) {
	p, sum := 1.0, 0.0
	for range n {
		p /= 2
	}
	for i := 0; i < n/2; i++ {
		if sum += p; sum > 0.025 {
			break
		}
		k = i
		p = p * float64(n-i) / float64(i+1)
	}
	return k
}
