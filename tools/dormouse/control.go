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
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// control is how status and purge reach a front that runs: a socket file that only this user can open.
type control struct {
	path   string
	server *http.Server
}

// socketPaths are where the socket of a store's front may be, the place of this process first: one that a service manager started has other
// variables than a shell. Socket names are short: the store's folder is hashed, whatever link leads there.
func socketPaths(dir string) ([]string, error) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	var bases []string
	if base := os.Getenv("XDG_RUNTIME_DIR"); base != "" {
		bases = append(bases, base)
	}
	if cache, err := os.UserCacheDir(); err == nil {
		bases = append(bases, filepath.Join(cache, "dormouse"))
	} else if len(bases) == 0 {
		return nil, err
	}
	bases = append(bases, fmt.Sprint("/run/user/", os.Getuid()))
	sum := sha256.Sum256([]byte(dir))
	var paths []string
	for _, base := range bases {
		if path := filepath.Join(base, "dormouse-"+hex.EncodeToString(sum[:6])+".sock"); !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

func newControl(dir string, front *llamaserver.Front, process *llamaserver.Process) (*control, error) {
	paths, err := socketPaths(dir)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if conn, err := net.Dial("unix", path); err == nil { // of one that holds the store
			conn.Close()
			return nil, fmt.Errorf("another dormouse serve answers at %s", path)
		}
	}
	path := paths[0]
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
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
	mux.HandleFunc("POST /purge", func(w http.ResponseWriter, r *http.Request) {
		var p llamaserver.Purge
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			answer(w, nil, err)
			return
		}
		out, err := front.Purge(r.Context(), p)
		answer(w, out, err)
	})
	c := &control{path, &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}}
	go c.server.Serve(l)
	return c, nil
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

// ask calls the front of a store.
func ask(ctx context.Context, dir, method, path string, body io.Reader, out any) error {
	sockets, err := socketPaths(dir)
	if err != nil {
		return err
	}
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
		return fmt.Errorf("%w: %s (%w)", errNoFront, dir, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return errors.New(string(b))
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
