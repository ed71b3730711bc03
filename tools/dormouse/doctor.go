package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

func newDoctor() *cobra.Command {
	o := &options{}
	var within time.Duration
	var watch bool
	var w watching
	cmd := &cobra.Command{
		Use:   "doctor [flags] -- llama-server [its arguments]",
		Short: "Start the server for a moment and say what will be kept of it, and what not; or watch what a running one is asked",
		Long: `Start the server for a moment and say what will be kept of it, and what not.

With --watch it starts nothing: it follows the requests that a running dormouse serve gets, and says, after three of a client, what that client should
be set to, so that more of its prompts is reused.`,
		Example: "  dormouse doctor -- llama-server -m model.gguf --port 8080\n  dormouse doctor --watch --for 10m",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fromEnvironment(cmd); err != nil {
				return err
			}
			switch {
			case watch && len(args) > 0:
				return errors.New("--watch follows a dormouse serve that runs already: name no command")
			case watch && w.within < 0:
				return fmt.Errorf("--for %v: expected more than 0", w.within)
			case watch:
				w.store = o.store
				return w.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			case w.asJSON || w.within != 0:
				return errors.New("--json and --for go with --watch")
			}
			return o.doctor(cmd.Context(), args, within, cmd.OutOrStdout())
		},
	}
	cmd.Flags().SetInterspersed(false)
	o.flags(cmd.Flags())
	cmd.Flags().DurationVar(&within, "within", 5*time.Minute, "how long the server may take to load its model")
	cmd.Flags().BoolVar(&watch, "watch", false, "follow the requests of a dormouse serve that runs, and say what its clients should be set to")
	cmd.Flags().DurationVar(&w.within, "for", 0, "with --watch: for how long (default: until Ctrl-C)")
	cmd.Flags().BoolVar(&w.asJSON, "json", false, "with --watch: one JSON object a line")
	return cmd
}

// doctor looks at a server with a store of its own, which it removes.
func (o *options) doctor(ctx context.Context, command []string, within time.Duration, out io.Writer) (err error) {
	f, err := o.front(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if within <= 0 {
		return fmt.Errorf("--within %v: expected more than 0", within)
	}
	args, base := &llamaserver.Arguments{}, (*url.URL)(nil)
	if o.attach == "" {
		args, err = llamaserver.ParseArguments(command, os.Environ())
	} else if base, err = o.attached(); err == nil {
		if len(command) > 0 {
			return errors.New("--attach is for a server that runs already: name no command")
		}
		args.Prefix, base.Path = base.Path, ""
	}
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
	if o.attach == "" {
		say(args.Refused == "", "arguments", orElse(args.Refused, "nothing in them stands in the way"))
	}
	if args.Rows != "" {
		say(true, "variant", "kept apart from servers without "+args.Rows)
	}
	o.checkDisk(f, say)
	tmp, err := os.MkdirTemp("", "dormouse-doctor-")
	if err != nil { // a container whose own files are read-only
		tmp, err = os.MkdirTemp(nearest(f.Dir), "dormouse-slots-doctor-")
	}
	if err != nil {
		return errWork{err}
	}
	defer os.RemoveAll(tmp)
	f.Dir, f.DB.Budget, f.DB.MinFree = filepath.Join(tmp, "store"), 256<<20, -1
	var server *llamaserver.Process
	if o.attach == "" {
		if server, err = llamaserver.NewProcess(args, slog.New(slog.DiscardHandler)); err != nil {
			return errWork{err}
		}
		base = server.URL()
	}
	front, err := llamaserver.New(base, args, f)
	if err != nil {
		return errWork{err}
	}
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		if server == nil {
			return front.Close(ctx)
		}
		return errors.Join(front.Close(ctx), server.Stop(ctx))
	}
	front.Opened(openTime) // a server that runs already is looked at once
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	state := func() string { return "of somebody else" }
	if server == nil {
		if why := o.unreached(ctx, front); why != "" {
			say(false, "server", why)
			return errWork{errors.Join(errStandsInTheWay, stop())}
		}
		front.Prepare()
	} else {
		state, server.Unseen = server.State, front.Unseen
		if err := server.Run(front.SlotFolder(), front.Started); err != nil {
			return errWork{errors.Join(err, stop())}
		}
		go func() { // a wrong flag, or a model that cannot be read, is not waited for
			select {
			case <-server.Ended():
				cancel()
			case <-watched.Done():
			}
		}()
	}
	found, err := front.Examine(watched, within)
	if err != nil {
		return errWork{errors.Join(fmt.Errorf("the server: %w (%s)", err, state()), stop())}
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
		return errWork{errStandsInTheWay}
	}
	return nil
}

var errStandsInTheWay = errors.New("something stands in the way, see above")

// checkDisk looks whether the store can be made, or opened, and has room.
func (o *options) checkDisk(f llamaserver.Options, say func(ok bool, what, detail string)) {
	if err := admin.CheckDir(f.Dir, o.sharedDir); err != nil {
		detail := err.Error()
		if errors.Is(err, db.ErrNotEmpty) {
			detail += ": name a folder of its own with --store"
		}
		say(false, "store", detail)
		return
	}
	test, err := os.CreateTemp(nearest(f.Dir), ".dormouse-doctor-")
	if err != nil {
		say(false, "store", f.Dir+" cannot be written to: "+err.Error())
		return
	}
	test.Close()
	os.Remove(test.Name())
	say(true, "store", f.Dir+" can be written to")
	free, used, kept, err := admin.Room(f.Dir, f.DB.MinFree)
	if err != nil {
		say(false, "room", err.Error())
		return
	}
	room := fmt.Sprintf("%s free, %s are kept free", humanize.IBytes(uint64(free)), humanize.IBytes(uint64(kept)))
	if free+used <= kept {
		room = "not storing: " + room + ": choose less with --min-free"
	}
	say(free+used > kept, "room", room)
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
