package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/internal/version"
	"github.com/dormousekv/dormouse/internal/visible"
)

func main() {
	end := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // not begun by nohup: its terminal is closed
		end = append(end, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), end...)
	context.AfterFunc(ctx, stop) // the second Ctrl-C does not wait
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the command, for main and for tests.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use: "dormouse", Short: "Keep what a language model has computed of your prompts", Version: version.Version,
		SilenceErrors: true, SilenceUsage: true,
	}
	root.AddCommand(newServe(), newStatus(), newExplain(), newPurge(), newDoctor(), newPin(), newWarm(), newUnpin())
	root.SetFlagErrorFunc(flagError)
	root.SetArgs(args)
	stderr = visible.Writer{Writer: stderr}
	root.SetOut(visible.Writer{Writer: stdout})
	root.SetErr(stderr)
	_, err := root.ExecuteContextC(ctx)
	var work errWork
	switch {
	case err == nil:
		return 0
	case errors.As(err, &work):
		fmt.Fprintln(stderr, "dormouse:", err)
		return 1
	case ctx.Err() != nil:
		return 130
	}
	fmt.Fprintln(stderr, "dormouse:", err)
	return 2
}
