package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/obs"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/obs/page"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

func newServe() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "serve [flags] -- llama-server [its arguments]",
		Short: "Start llama-server and keep what it computes",
		Long: `Start llama-server with its own arguments, answer in its place, and keep what it has computed: a prompt that begins like one before is
restored, not computed, also after a restart. Every flag can be given as a variable of the environment: --budget as DORMOUSE_BUDGET.`,
		Example: "  dormouse serve -- llama-server -m model.gguf --port 8080\n  dormouse serve --attach http://127.0.0.1:8080 --slot-dir /var/lib/slots --listen 127.0.0.1:8081",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fromEnvironment(cmd); err != nil {
				return err
			}
			return o.serve(cmd.Context(), args)
		},
	}
	cmd.Flags().SetInterspersed(false)
	o.flags(cmd.Flags())
	return cmd
}

// How long the end takes at most: for answers to come to theirs, to save the slots, and for the server to go.
const (
	graceTime = 10 * time.Second
	saveTime  = 10 * time.Second
	stopTime  = 10 * time.Second
)

func (o *options) serve(ctx context.Context, command []string) (err error) {
	logger, err := o.logger()
	if err != nil {
		return err
	}
	f, err := o.front(logger)
	if err != nil {
		return err
	}
	var server *llamaserver.Process
	var base *url.URL
	args := &llamaserver.Arguments{}
	if o.attach != "" {
		if len(command) > 0 {
			return errors.New("--attach is for a server that runs already: name no command")
		}
		if base, err = o.attached(); err != nil {
			return err
		}
		if o.listenOn == "" {
			return errors.New("--attach needs --listen, the address where clients will find the front")
		}
		args.Prefix, base.Path = base.Path, ""
	} else {
		if args, err = llamaserver.ParseArguments(command, os.Environ()); err != nil {
			return err
		}
		if server, err = llamaserver.NewProcess(args, logger); err != nil {
			return errWork{err}
		}
		base = server.URL()
	}
	os.MkdirAll(filepath.Dir(f.Dir), 0o700) // for the memo of hashes; if the store cannot be made, that is said below
	address := o.listenOn
	if address == "" {
		address = args.Listen()
	}
	listener, err := o.listen(address)
	if err != nil {
		return errWork{err}
	}
	front, err := llamaserver.New(base, args, f)
	if err != nil {
		return errWork{errors.Join(err, listener.Close())}
	}
	control, err := newControl(f.Dir, front, server)
	if err != nil {
		logger.Warn("dormouse status, purge, pin and warm will not reach this process", "err", err)
	}
	defer control.close()
	now := func() figures.Front {
		f := front.Figures()
		if server != nil {
			f.Server = server.State()
		}
		return f
	}
	look := page.New(page.Options{Title: "llama-server", Store: front.Store, Front: now, Askers: front.Askers, Anywhere: o.allowRemote})
	measure := obs.Handler(obs.Options{Store: front.Store, Front: now})
	web := &http.Server{
		Handler: o.handler(front, look, measure), ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() {
		if args.Cert != "" && args.Key != "" {
			ended <- web.ServeTLS(listener, args.Cert, args.Key)
		} else {
			ended <- web.Serve(listener)
		}
	}()
	if server != nil {
		server.Unseen = front.Unseen
		err = server.Run(front.SlotFolder(), front.Started)
	} else {
		front.Prepare()
	}
	if err == nil {
		fmt.Fprintf(os.Stderr, "dormouse: %s answers for llama-server; %s\n", listener.Addr(), o.kept(front, f.Dir))
		if why := o.unreached(ctx, front); why != "" {
			logger.Warn(why + ": requests are answered with 503 until somebody does")
		}
		err = o.wait(ctx, front, server, ended)
	}
	// New requests are refused; those at work end, as long as nobody hurries.
	if ctx.Err() != nil {
		fmt.Fprintf(os.Stderr, "dormouse: ending; answers that are being given have %s, then what the slots hold is saved (Ctrl-C again ends at once)\n", graceTime)
	}
	look.Close()
	err = errors.Join(err, within(graceTime, func(ctx context.Context) error {
		if web.Shutdown(ctx) != nil {
			web.Close()
		}
		return nil
	}), within(saveTime, front.Close))
	if server != nil {
		err = errors.Join(err, within(stopTime, server.Stop))
	}
	if err != nil {
		return errWork{err}
	}
	return nil
}

// openTime is how long the first line waits to say whether there is a store: one whose index was lost takes longer.
const openTime = 2 * time.Second

// kept says whether prompts are kept, and where.
func (o *options) kept(front *llamaserver.Front, dir string) string {
	switch err := front.Opened(openTime); {
	case err == nil:
		return fmt.Sprintf("prompts are kept in %s (at most %s)", dir, o.budget)
	case errors.Is(err, llamaserver.ErrOpening):
		return fmt.Sprintf("the store in %s is being opened, until then nothing is kept", dir)
	default:
		return fmt.Sprintf("nothing is kept until there is a store (--store): %v", err)
	}
}

func within(d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return f(ctx)
}

// wait returns when it is time to stop. A server that ends before it has ever answered was started wrongly, and is not started again for ever.
func (o *options) wait(ctx context.Context, front *llamaserver.Front, server *llamaserver.Process, ended <-chan error) error {
	var died <-chan struct{}
	if server != nil {
		died = server.Ended()
	}
	for {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		case <-died:
			if !front.Answered() {
				return errors.New("llama-server has ended before it answered: what it printed says why")
			}
			died = nil
		}
	}
}

// handler serves what is the front's own under /dormouse/, and all else as the server does: paths are not cleaned.
func (o *options) handler(front http.Handler, look, measure http.Handler) http.Handler {
	look = http.StripPrefix("/dormouse", look)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/dormouse":
			http.Redirect(w, r, "/dormouse/", http.StatusMovedPermanently)
		case path == "/dormouse/metrics" && !o.allowRemote && !page.Local(r):
			http.Error(w, "the metrics are for the machine that they are of; see --page-for-all", http.StatusForbidden)
		case path == "/dormouse/metrics":
			measure.ServeHTTP(w, r)
		case strings.HasPrefix(path, "/dormouse/"):
			look.ServeHTTP(w, r)
		default:
			front.ServeHTTP(w, r)
		}
	})
}
