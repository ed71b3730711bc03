package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

func newDoctor() *cobra.Command {
	o := &options{}
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "doctor [flags] -- llama-server [its arguments]",
		Short: "Start the server for a moment and say what will be kept of it, and what not",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fromEnvironment(cmd); err != nil {
				return err
			}
			return o.doctor(cmd.Context(), args, within, cmd.OutOrStdout())
		},
	}
	cmd.Flags().SetInterspersed(false)
	o.flags(cmd.Flags())
	cmd.Flags().DurationVar(&within, "within", 5*time.Minute, "how long the server may take to load its model")
	return cmd
}

// doctor looks at a server with a store of its own, which it removes.
func (o *options) doctor(ctx context.Context, command []string, within time.Duration, out io.Writer) (err error) {
	f, err := o.front(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	args, err := llamaserver.ParseArguments(command, os.Environ())
	if err != nil {
		return err
	}
	good := true
	say := func(ok bool, what, detail string) {
		mark := "ok  "
		if !ok {
			mark, good = "NOT ", false
		}
		fmt.Fprintf(out, "%s %-10s %s\n", mark, what, detail)
	}
	say(args.Refused == "", "arguments", orElse(args.Refused, "nothing in them stands in the way"))
	if args.Rows != "" {
		say(true, "variant", "kept apart from servers without "+args.Rows)
	}
	checkDisk(f, say)
	tmp, err := os.MkdirTemp("", "dormouse-doctor-")
	if err != nil {
		return errWork{err}
	}
	defer os.RemoveAll(tmp)
	f.Dir, f.DB.Budget = filepath.Join(tmp, "store"), 256<<20
	server, err := llamaserver.NewProcess(args, slog.New(slog.DiscardHandler))
	if err != nil {
		return errWork{err}
	}
	front, err := llamaserver.New(server.URL(), args, f)
	if err != nil {
		return errWork{err}
	}
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		return errors.Join(front.Close(ctx), server.Stop(ctx))
	}
	if err := server.Run(front.SlotFolder(), front.Started); err != nil {
		return errWork{errors.Join(err, stop())}
	}
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // a wrong flag, or a model that cannot be read, is not waited for
		select {
		case <-server.Ended():
			cancel()
		case <-watched.Done():
		}
	}()
	found, err := front.Examine(watched, within)
	if err != nil {
		return errWork{errors.Join(fmt.Errorf("the server: %w (%s)", err, server.State()), stop())}
	}
	for _, c := range found {
		say(c.OK, c.What, c.Detail)
	}
	if err := stop(); err != nil {
		return errWork{err}
	}
	fmt.Fprintln(out, `
Passes as it is: requests with images or sound, with several prompts or n above 1, with "cache_prompt": false, with an id_slot of their own,
/infill, /embeddings, and tools in /v1/responses that are no functions.`)
	if !good {
		return errWork{errors.New("something stands in the way, see above")}
	}
	return nil
}

func checkDisk(f llamaserver.Options, say func(ok bool, what, detail string)) {
	dir := f.Dir
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	if list, err := os.ReadDir(f.Dir); err == nil && len(list) > 0 {
		if _, err := os.Stat(filepath.Join(f.Dir, "FORMAT")); err != nil {
			say(false, "store", f.Dir+" has files that are no store, "+list[0].Name()+" among them: name a folder of its own with --store")
			return
		}
	}
	test, err := os.CreateTemp(dir, ".dormouse-doctor-")
	if err != nil {
		say(false, "store", err.Error())
		return
	}
	test.Close()
	os.Remove(test.Name())
	say(true, "store", f.Dir+" can be written to")
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
