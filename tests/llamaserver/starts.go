//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// startsReport is what starts reports.
type startsReport struct {
	Server string     `json:"server"`
	Model  string     `json:"model"`
	Ways   []wayStart `json:"ways"`
	Starts int        `json:"starts"` // of all ways
	Hits   int        `json:"first_hits"`
}

// wayStart is what became of the first requests after many starts of one kind.
type wayStart struct {
	Way      string         `json:"way"`
	Starts   int            `json:"starts"`
	Firsts   int            `json:"firsts"`     // requests: each start has as many as there are clients at once
	Hits     int            `json:"first_hits"` // of these
	Outcomes map[string]int `json:"outcomes"`
	Refused  int            `json:"refused"`    // answers with status 503 before, and connections refused
	First    spread         `json:"first_byte"` // of the request that was answered
	Ready    spread         `json:"start_to_first_byte"`
}

// spread is how times lie, in milliseconds.
type spread struct {
	Least  int64 `json:"least_ms"`
	Half   int64 `json:"half_ms"`
	Most95 int64 `json:"p95_ms"`
	Most   int64 `json:"most_ms"`
}

func spreadOf(times []time.Duration) spread {
	if len(times) == 0 {
		return spread{}
	}
	slices.Sort(times)
	at := func(share float64) int64 { return times[int(share*float64(len(times)-1)+0.5)].Milliseconds() }
	return spread{at(0), at(0.5), at(0.95), at(1)}
}

// way is a kind of start. begin starts all that was killed and says where clients ask; end kills it.
type way struct {
	name    string
	clients int
	healthy bool // the client asks /health first, until it says that all is well
	model   string
	begin   func(ctx context.Context) (*front, error)
	end     func()
}

// starts kills front and server, starts them again with the same command, and asks at once what is stored, as agents do: who gets a 503 asks again.
func starts(ctx context.Context, r *rig) (any, error) {
	out := &startsReport{Server: r.version, Model: filepath.Base(r.model)}
	list, err := r.ways()
	if err != nil {
		return nil, err
	}
	var wrong []error
	for _, w := range list {
		got, err := r.startMany(ctx, w)
		if err != nil {
			return out, fmt.Errorf("%s: %w", w.name, err)
		}
		r.note("%s: %d of %d first requests are hits %v; first byte %+v", w.name, got.Hits, got.Firsts, got.Outcomes, got.First)
		out.Ways, out.Starts, out.Hits = append(out.Ways, got), out.Starts+got.Firsts, out.Hits+got.Hits
		if got.Hits < got.Firsts {
			wrong = append(wrong, fmt.Errorf("%s: %d of %d first requests are no hits: %v", w.name, got.Firsts-got.Hits, got.Firsts, got.Outcomes))
		}
	}
	return out, errors.Join(wrong...)
}

// ways are the kinds of starts, each with a store and an address of its own, that stay what they are.
func (r *rig) ways() ([]way, error) {
	var out []way
	for _, w := range []struct {
		name    string
		clients int
		healthy bool
		kind    string
	}{
		{"front and server killed", 1, false, "serve"},
		{"front and server killed, two clients", 2, false, "serve"},
		{"front and server killed, the client waits for /health", 1, true, "serve"},
		{"front killed, its server stays", 1, false, "attach"},
		{"front killed, and the server that somebody else runs", 1, false, "attach both"},
		{"the server alone killed", 1, false, "server"},
		{"a router and its front killed", 1, false, "router"},
	} {
		store, err := r.folder("store")
		if err != nil {
			return nil, err
		}
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		if !strings.Contains(w.name, r.only) {
			continue
		}
		one := way{name: w.name, clients: w.clients, healthy: w.healthy}
		store = filepath.Join(store, "store")
		switch w.kind {
		case "serve":
			err = r.wayServe(&one, port, store, append([]string{r.server}, r.serverArgs("--port", port, "-np", "2")...))
		case "router":
			err = r.wayRouter(&one, port, store)
		case "server":
			err = r.wayServer(&one, port, store)
		default:
			err = r.wayAttach(&one, port, store, w.kind == "attach both")
		}
		if err != nil {
			return nil, err
		}
		if one.begin != nil {
			out = append(out, one)
		}
	}
	return out, nil
}

func (r *rig) wayServe(w *way, port, store string, command []string) error {
	var f *front
	w.begin = func(ctx context.Context) (_ *front, err error) {
		f, err = r.serveAt(ctx, port, store, nil, append([]string{"--"}, command...)...)
		return f, err
	}
	w.end = func() { f.kill() } // the server goes with it
	return nil
}

// wayServer kills the server behind a front that goes on. A server that has ended often is started again later and later: so now and then the front is new, too.
func (r *rig) wayServer(w *way, port, store string) error {
	var f *front
	command := append([]string{r.server}, r.serverArgs("--port", port, "-np", "2")...)
	kills := 0
	w.begin = func(ctx context.Context) (_ *front, err error) {
		first := f == nil
		if kills++; first || kills > 2 {
			if !first {
				f.kill()
			}
			kills = 1
			f, err = r.serveAt(ctx, port, store, nil, append([]string{"--"}, command...)...)
			if first || err != nil {
				return f, err
			}
			if err := f.ready(ctx); err != nil {
				return nil, err
			}
		}
		before, err := f.status(ctx)
		if err != nil {
			return nil, err
		}
		if before.ServerPID > 0 {
			if err := syscall.Kill(before.ServerPID, syscall.SIGKILL); err != nil {
				return nil, err
			}
		}
		// Until the front has seen it end, a request would meet a connection that breaks off.
		return f, until(ctx, "the server has ended", func() (bool, error) { return gone(before.ServerPID), nil })
	}
	w.end = func() {}
	return nil
}

func (r *rig) wayAttach(w *way, port, store string, both bool) error {
	slots, err := r.folder("slots")
	if err != nil {
		return err
	}
	at, err := freePort()
	if err != nil {
		return err
	}
	var f *front
	var server *process
	w.begin = func(ctx context.Context) (_ *front, err error) {
		line := append([]string{r.server, "--port", at, "-np", "2", "--slot-save-path", slots + "/"}, r.serverArgs()...)
		switch {
		case both:
			server, err = r.start("server-alone", nil, line...) // front and server start at once
		case server == nil:
			server, err = r.aloneAt(ctx, at, line[3:]...)
		default:
			// The slots are emptied: what a slot has would be a hit of its own.
			for id := range 2 {
				err = errors.Join(err, post(ctx, fmt.Sprintf("http://127.0.0.1:%s/slots/%d?action=erase", at, id), object{}, nil))
			}
		}
		if err != nil {
			return nil, err
		}
		f, err = r.serveAt(ctx, port, store, []string{"--attach", "http://127.0.0.1:" + at, "--slot-dir", slots, "--listen", "127.0.0.1:" + port})
		return f, err
	}
	w.end = func() {
		f.kill()
		if both {
			server.kill()
		}
	}
	return nil
}

func (r *rig) wayRouter(w *way, port, store string) error {
	if _, err := os.Stat(filepath.Join(filepath.Dir(r.server), "interpreter")); err != nil && strings.Contains(r.server, ".cache") {
		r.note("no router: this llama-server cannot start itself, tests/llama/server.sh needs patchelf")
		return nil
	}
	models, err := r.folder("models")
	if err != nil {
		return err
	}
	if err := os.Symlink(r.model, filepath.Join(models, "a.gguf")); err != nil {
		return err
	}
	w.model = "a"
	return r.wayServe(w, port, store, []string{r.server, "-t", "1", "-tb", "1", "--port", port, "-np", "2", "--models-dir", models})
}

// startMany has the prompt stored once, and then asks it anew after each start.
func (r *rig) startMany(ctx context.Context, w way) (out wayStart, err error) {
	out = wayStart{Way: w.name, Starts: r.times, Outcomes: map[string]int{}}
	f, err := w.begin(ctx)
	if err != nil {
		return out, err
	}
	defer func() {
		w.end()
		f.kill()
	}()
	body := startsBody(w.model)
	if err := until(ctx, "the prompt is kept", func() (bool, error) {
		a, err := complete(ctx, f.url, body)
		return err == nil && a.status == http.StatusOK && !strings.HasPrefix(a.header, "pass"), nil
	}); err != nil {
		return out, err
	}
	if _, err := f.stored(ctx); err != nil {
		return out, err
	}
	var first, ready []time.Duration
	for range r.times {
		w.end()
		began := time.Now()
		if f, err = w.begin(ctx); err != nil {
			return out, err
		}
		results := make(chan firstAnswer, w.clients)
		for range w.clients {
			go func() { results <- askFirst(ctx, f, body, w.healthy) }()
		}
		for range w.clients {
			x := <-results
			if x.err != nil {
				return out, x.err
			}
			out.Firsts++
			out.Refused += x.refused
			out.Outcomes[outcomeOf(x.header)]++
			if strings.HasPrefix(x.header, "hit") || w.clients > 1 && strings.HasPrefix(x.header, "slot") {
				out.Hits++ // of two at once, the second may find in a slot what was restored for the first
			}
			first, ready = append(first, x.first), append(ready, x.ended.Sub(began))
		}
		if out.Hits == out.Firsts { // what they have logged tells nothing
			r.procs = slices.DeleteFunc(r.procs, func(p *process) bool { return !p.running() })
		}
	}
	out.First, out.Ready = spreadOf(first), spreadOf(ready)
	return out, nil
}

// outcomeOf is a header without its numbers.
func outcomeOf(header string) string {
	var words []string
	for part := range strings.SplitSeq(header, ";") {
		if part = strings.TrimSpace(part); !strings.Contains(part, "=") || strings.HasPrefix(part, "reason=") {
			words = append(words, part)
		}
	}
	return strings.Join(words, "; ")
}

func startsBody(model string) object {
	body := object{"prompt": diary("Ada", 7, 60), "n_predict": 4, "temperature": 0, "stream": true}
	if model != "" {
		body["model"] = model
	}
	return body
}

// firstAnswer is the first answer that is none with status 503.
type firstAnswer struct {
	answer
	refused int
	ended   time.Time // when its first byte came
	err     error
}

// askFirst asks until it is answered.
func askFirst(ctx context.Context, f *front, body object, healthy bool) (x firstAnswer) {
	if healthy {
		x.err = until(ctx, "the server says that all is well", func() (bool, error) {
			_, err := get(ctx, join(f.url, "/health"))
			if err != nil {
				x.refused++
			}
			return err == nil, nil
		})
		if x.err != nil {
			return x
		}
	}
	for ctx.Err() == nil {
		asked := time.Now()
		a, err := complete(ctx, f.url, body)
		if err == nil && a.status == http.StatusOK {
			x.answer, x.ended = a, asked.Add(a.first)
			return x
		}
		if !f.running() {
			x.err = errors.New("the front has ended")
			return x
		}
		if err == nil && a.status != http.StatusServiceUnavailable {
			x.err = fmt.Errorf("the answer is %v", a)
			return x
		}
		x.refused++
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
	x.err = ctx.Err()
	return x
}
