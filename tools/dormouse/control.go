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
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// control is how status and purge reach a front that runs: a socket file that only this user can open.
type control struct {
	path   string
	server *http.Server
}

// socketPath is the socket of the front of a store. Socket names are short: the store's folder is hashed.
func socketPath(dir string) (string, error) {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if base == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		base = filepath.Join(cache, "dormouse")
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(base, "dormouse-"+hex.EncodeToString(sum[:6])+".sock"), nil
}

func newControl(dir string, front *llamaserver.Front, process *llamaserver.Process) (*control, error) {
	path, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	if conn, err := net.Dial("unix", path); err == nil { // of one that holds the store
		conn.Close()
		return nil, fmt.Errorf("another dormouse serve answers at %s", path)
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
	socket, err := socketPath(dir)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
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
