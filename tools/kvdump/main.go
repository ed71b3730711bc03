package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/version"
	"github.com/dormousekv/dormouse/internal/visible"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second Ctrl-C does not wait
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the command, for main and for tests.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	out := &checked{Writer: stdout}
	root.SetOut(visible.Writer{Writer: out})
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	stderr = visible.Writer{Writer: stderr} // no progress is shown any more
	var work errWork
	if out.err != nil && (err == nil || errors.Is(err, out.err) || errors.Is(err, errDamage)) {
		fmt.Fprintln(stderr, "kvdump: the report could not be written:", out.err)
		return exitDamage
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errDamage):
		return exitDamage
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "kvdump: interrupted")
		return exitInterrupted
	case errors.Is(err, db.ErrLocked), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, db.ErrVersion):
		fmt.Fprintln(stderr, "kvdump:", err)
		return exitMisuse
	case errors.Is(err, db.ErrUnsafeDir):
		fmt.Fprintln(stderr, "kvdump:", err)
		fmt.Fprintln(stderr, "--allow-shared-dir accepts it.")
		return exitMisuse
	case errors.As(err, &work):
		fmt.Fprintln(stderr, "kvdump:", err)
		return exitDamage
	}
	fmt.Fprintf(stderr, "%s: %v\n%s\n", cmd.CommandPath(), err, usageOf(cmd))
	return exitMisuse
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "kvdump",
		Short:         "Look into a Dormouse store",
		Version:       version.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c := &common{}
	root.PersistentFlags().BoolVar(&c.json, "json", false, "print one JSON document")
	root.PersistentFlags().BoolVar(&c.sharedDir, "allow-shared-dir", false, "accept a directory that others own or can write to")
	root.AddCommand(newInspect(c), newVerify(c), newCompact(c), newExplain(c), newRepair(c), newReport(c), newDelete(c))
	root.SetFlagErrorFunc(badFlag)
	root.SetVersionTemplate("kvdump {{.Version}}\n")
	root.InitDefaultCompletionCmd("completion")
	if cmd, _, err := root.Find([]string{"completion"}); err == nil { // as cobra makes it, it answers an unknown shell with its help
		cmd.Args = cobra.NoArgs
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	return root
}
