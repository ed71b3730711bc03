//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

// local is for requests to this machine; no proxy of the environment is asked. Servers end connections that are kept.
var local = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// watch is a proxy before the front that notes what is asked and what the server says of each answer. Clients talk to it: its address stays.
type watch struct {
	url      string
	listener net.Listener

	mu    sync.Mutex
	to    *url.URL    // guarded by mu
	asked []*exchange // guarded by mu
}

// exchange is a request to compute a prompt, and its answer.
type exchange struct {
	path   string
	header http.Header
	body   []byte
	status int
	front  string // X-Dormouse
	figures
	firstToken time.Duration // from the arrival of the request to the first part of the answer
	ended      bool          // the client has got the whole answer
}

// figures are the server's own.
type figures struct {
	known          bool
	cached, prompt int // tokens; prompt includes those that were cached
}

func newWatch() (*watch, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &watch{url: "http://" + l.Addr().String(), listener: l}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			w.mu.Lock()
			defer w.mu.Unlock()
			r.SetURL(w.to)
			r.Out.Host = r.In.Host
		},
		Transport:     local.Transport,
		FlushInterval: -1,
	}
	go http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			proxy.ServeHTTP(rw, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		x := &exchange{path: r.URL.Path, header: r.Header.Clone(), body: body}
		w.mu.Lock()
		w.asked = append(w.asked, x)
		w.mu.Unlock()
		tee := &tee{ResponseWriter: rw, began: time.Now()}
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			x.status, x.front, x.firstToken = tee.status, rw.Header().Get("X-Dormouse"), tee.first
			x.figures, x.ended = figuresOf(tee.kept), r.Context().Err() == nil
		}()
		proxy.ServeHTTP(tee, r)
	}))
	return w, nil
}

func (w *watch) close() { w.listener.Close() }

// before has the proxy hand on what comes to a front, and forgets what was asked.
func (w *watch) before(s *stack) error {
	u, err := url.Parse(s.url())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to, w.asked = u, nil
	return err
}

// main is the request that was the turn: clients ask for a title, a topic or a count besides it, with shorter prompts.
func (w *watch) main() (main exchange, all []exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.asked {
		all = append(all, *x)
		if x.known && x.prompt > main.prompt {
			main = *x
		}
	}
	w.asked = nil
	return main, all
}

// tee keeps a copy of an answer.
type tee struct {
	http.ResponseWriter
	began  time.Time
	first  time.Duration
	status int
	kept   []byte
}

func (t *tee) WriteHeader(status int) {
	t.status = status
	t.ResponseWriter.WriteHeader(status)
}

func (t *tee) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if t.first == 0 && bytes.Contains(t.kept, []byte("{")) { // not a comment that keeps the stream alive
		t.first = time.Since(t.began)
	}
	return t.ResponseWriter.Write(p)
}

func (t *tee) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// figuresOf finds what the server says of an answer, streamed or not. What is said last counts, and "timings" more than "usage".
func figuresOf(kept []byte) (f figures) {
	timed := false
	document := func(b []byte) {
		var v any
		if json.Unmarshal(b, &v) != nil {
			return
		}
		walk(v, func(key string, m map[string]any) {
			number := func(m map[string]any, key string) (int, bool) { n, ok := m[key].(float64); return int(n), ok }
			within := func(key string) map[string]any { in, _ := m[key].(map[string]any); return in }
			set := func(cached, prompt int) {
				f = figures{known: true, cached: cached, prompt: prompt}
			}
			if key == "timings" {
				cached, ok := number(m, "cache_n")
				computed, ok2 := number(m, "prompt_n")
				if ok && ok2 {
					timed = true
					set(cached, cached+computed)
				}
				return
			}
			if timed {
				return
			}
			if cached, ok := number(m, "cache_read_input_tokens"); ok { // what was read is not counted as input
				if input, ok := number(m, "input_tokens"); ok {
					set(cached, cached+input)
				}
			} else if cached, ok := number(within("input_tokens_details"), "cached_tokens"); ok {
				input, _ := number(m, "input_tokens")
				set(cached, input)
			} else if cached, ok := number(within("prompt_tokens_details"), "cached_tokens"); ok {
				prompt, _ := number(m, "prompt_tokens")
				set(cached, prompt)
			}
		})
	}
	document(kept)
	for line := range strings.Lines(string(kept)) {
		if data, ok := strings.CutPrefix(line, "data:"); ok {
			document([]byte(data))
		}
	}
	return f
}

// walk calls visit for each object that has "timings" or "usage" as its name, however deep.
func walk(v any, visit func(key string, m map[string]any)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			walk(e, visit)
		}
	case map[string]any:
		for key, e := range v {
			if m, ok := e.(map[string]any); ok && (key == "timings" || key == "usage") {
				visit(key, m)
				continue
			}
			walk(e, visit)
		}
	}
}
