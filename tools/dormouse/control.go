package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// errWork marks errors of the work itself, as opposed to how it was asked for.
type errWork struct{ error }

func (e errWork) Unwrap() error { return e.error }

// control is how status, explain, purge, pin and warm reach a front that runs: a socket file that only this user can open.
type control struct {
	path   string
	server *http.Server
}

// socketPaths are where the socket of a store's front may be, the place of this process first: one that a service manager started has other
// variables than a shell. Socket names are short: the store's folder is hashed, whatever link leads there. The last place is that folder itself: in a container without
// a home there may be no other.
func socketPaths(dir string) []string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	sum := sha256.Sum256([]byte(dir))
	var paths []string
	for _, base := range socketBases() {
		if path := filepath.Join(base, "dormouse-"+hex.EncodeToString(sum[:6])+".sock"); !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return append(paths, filepath.Join(dir, "dormouse-control.sock"))
}

// runningSockets are the sockets of all fronts of this user, but for those that lie in the folder of their store.
func runningSockets() (paths []string) {
	for _, base := range socketBases() {
		found, _ := filepath.Glob(filepath.Join(base, "dormouse-????????????.sock"))
		for _, path := range found {
			if !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

func socketBases() (bases []string) {
	if base := os.Getenv("XDG_RUNTIME_DIR"); base != "" {
		bases = append(bases, base)
	}
	if cache, err := os.UserCacheDir(); err == nil {
		bases = append(bases, filepath.Join(cache, "dormouse"))
	}
	return append(bases, runFolder())
}

// runFolder is this user's folder for what lives as long as a session; the system makes it.
func runFolder() string { return fmt.Sprint("/run/user/", os.Getuid()) }

func newControl(dir string, front *llamaserver.Front, process *llamaserver.Process) (*control, error) {
	paths := socketPaths(dir)
	for _, path := range paths {
		if conn, err := net.Dial("unix", path); err == nil { // of one that holds the store
			conn.Close()
			return nil, fmt.Errorf("another dormouse serve answers at %s", path)
		}
	}
	l, path, err := listenFirst(paths)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		s, err := front.Status(r.Context())
		if process != nil {
			s.Server, s.ServerPID = process.State(), process.PID()
		}
		answer(w, s, err)
	})
	mux.HandleFunc("GET /explain", func(w http.ResponseWriter, _ *http.Request) {
		list, err := front.Explain()
		answer(w, list, err)
	})
	mux.HandleFunc("POST /purge", func(w http.ResponseWriter, r *http.Request) {
		var p llamaserver.Purge
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			answer(w, nil, err)
			return
		}
		out, err := front.Purge(r.Context(), p)
		answer(w, out, err)
	})
	pinRoutes(mux, front)
	c := &control{path, &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}}
	go c.server.Serve(l)
	return c, nil
}

// listenFirst makes the socket in the first place that takes one.
func listenFirst(paths []string) (net.Listener, string, error) {
	var failed []error
	for _, path := range paths {
		err := error(nil)
		if base := filepath.Dir(path); base != runFolder() {
			err = os.MkdirAll(base, 0o700)
		}
		if err == nil {
			os.Remove(path)
			var l net.Listener
			if l, err = net.Listen("unix", path); err == nil {
				if err = os.Chmod(path, 0o600); err == nil {
					return l, path, nil
				}
				l.Close()
			}
		}
		failed = append(failed, err)
	}
	return nil, "", errors.Join(failed...)
}

func (c *control) close() {
	if c != nil {
		c.server.Close()
		os.Remove(c.path)
	}
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// errNoFront is returned where no front of the store runs.
var errNoFront = errors.New("no dormouse serve of this store runs")

// frontOf is the store whose front is asked: the one that was named, or the default one. Where that was not said and has none, it is that of the only front
// that runs here.
func frontOf(ctx context.Context, store string) (dir string, err error) {
	if dir, err = storeDir(store); err != nil || store != "" {
		return dir, err
	}
	all, err := statuses(ctx, dir, true)
	switch {
	case err != nil: // whoever asks it says so
		return dir, nil
	case len(all) == 1:
		return all[0].Dir, nil
	}
	var dirs []string
	for _, s := range all {
		dirs = append(dirs, s.Dir)
	}
	return "", fmt.Errorf("several dormouse serve run here: say with --store which one is meant, of %s", strings.Join(dirs, ", "))
}

// ask calls the front of a store.
func ask(ctx context.Context, dir, method, path string, body io.Reader, out any) error {
	err := askAt(ctx, socketPaths(dir), method, path, body, out)
	if errors.Is(err, errNoFront) {
		return fmt.Errorf("%w (%s)", err, dir)
	}
	return err
}

// askAt calls the front that answers at one of some sockets.
func askAt(ctx context.Context, sockets []string, method, path string, body io.Reader, out any) error {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var first error
		for _, socket := range sockets {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
			if err == nil {
				return conn, nil
			}
			if first == nil {
				first = err
			}
		}
		return nil, first
	}}}
	req, err := http.NewRequestWithContext(ctx, method, "http://dormouse"+path, body)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoFront, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return errors.New(strings.TrimSpace(string(b)))
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// pinRoutes are how pin, warm and unpin reach a front.
func pinRoutes(mux *http.ServeMux, front *llamaserver.Front) {
	keep := func(do func(context.Context, llamaserver.Keep) (llamaserver.Kept, error)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var k llamaserver.Keep
			if err := json.NewDecoder(r.Body).Decode(&k); err != nil {
				answer(w, nil, err)
				return
			}
			out, err := do(r.Context(), k)
			answer(w, out, err)
		}
	}
	mux.HandleFunc("POST /pin", keep(front.Pin))
	mux.HandleFunc("POST /warm", keep(front.Warm))
	mux.HandleFunc("GET /pins", func(w http.ResponseWriter, _ *http.Request) {
		out, err := front.Pins()
		answer(w, out, err)
	})
	mux.HandleFunc("POST /unpin", func(w http.ResponseWriter, r *http.Request) {
		var name string
		err := json.NewDecoder(r.Body).Decode(&name)
		if err == nil {
			err = front.Unpin(r.Context(), name)
		}
		answer(w, struct{}{}, err)
	})
}

// statuses are those of the front of a store; where none was named and that one does not run, of all fronts that run here.
func statuses(ctx context.Context, dir string, any bool) ([]llamaserver.Status, error) {
	var s llamaserver.Status
	err := ask(ctx, dir, "GET", "/status", nil, &s)
	if err == nil {
		return []llamaserver.Status{s}, nil
	}
	var all []llamaserver.Status
	if any && errors.Is(err, errNoFront) {
		for _, socket := range runningSockets() {
			var s llamaserver.Status
			if askAt(ctx, []string{socket}, "GET", "/status", nil, &s) == nil {
				all = append(all, s)
			}
		}
	}
	if len(all) == 0 {
		return nil, err
	}
	return all, nil
}
