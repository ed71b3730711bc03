//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// suffered is what faults reports.
type suffered struct {
	Server string   `json:"server"`
	Model  string   `json:"model"`
	Faults []string `json:"faults"` // with what became of the requests
}

// faults lets files and servers fail, and compares every answer with that of a server alone.
func faults(ctx context.Context, r *rig) (any, error) {
	out := &suffered{Server: r.version, Model: filepath.Base(r.model)}
	alone, err := r.alone(ctx, faultArgs...)
	if err != nil {
		return nil, err
	}
	want := map[string]string{}
	for _, who := range folk {
		a, err := must(ctx, alone.url, letter(who, true))
		if err != nil {
			return nil, err
		}
		want[who] = a.text
	}
	var wrong []error
	try := func(name string, run func() (string, error)) {
		said, err := run()
		out.Faults = append(out.Faults, name+": "+said)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
	}
	kinds := damages
	if r.quick {
		kinds = damages[:3]
	}
	for _, d := range kinds {
		for _, action := range []string{"save", "restore"} {
			try(action+", the file is "+d.name, func() (string, error) { return r.damaged(ctx, want, action, d.change) })
		}
	}
	try("the server hangs", func() (string, error) { return r.hangs(ctx, want) })
	for _, o := range others {
		try(o.name, func() (string, error) { return r.replaced(ctx, want, o.path, o.args) })
		if r.quick {
			break
		}
	}
	return out, errors.Join(wrong...)
}

var (
	folk      = []string{"Ada", "Ben", "Cleo", "Dora"}
	faultArgs = []string{"-c", "1024", "-np", "2"}
)

// letter is a request; alone: the server is not to use what it has.
func letter(who string, alone bool) object {
	ask, _ := song(uint64(who[0]), 6)
	body := object{"prompt": diary(who, uint64(who[0]), 60) + ask, "n_predict": 12, "temperature": 0}
	if alone {
		body["cache_prompt"] = false
	}
	return body
}

// ask asks everybody's letter twice and says what became of them.
func ask(ctx context.Context, base string, want map[string]string) (string, error) {
	outcomes := map[string]int{}
	var wrong []error
	for range 2 {
		for _, who := range folk {
			a, err := must(ctx, base, letter(who, false))
			word, _, _ := strings.Cut(a.header, ";")
			outcomes[word]++
			if err == nil && a.text != want[who] {
				err = fmt.Errorf("the answer is %v, alone %q", a, want[who])
			}
			if err != nil {
				wrong = append(wrong, fmt.Errorf("%s's letter: %w", who, err))
			}
			time.Sleep(400 * time.Millisecond) // an idle slot is saved
		}
	}
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(outcomes), "map["), "]"), errors.Join(wrong...)
}

// damages are what may happen to a slot file between server and front.
var damages = []struct {
	name   string
	change func(path string) error
}{
	{"cut in its middle", resized(func(n int64) int64 { return n / 2 })},
	{"of another version", changed(4, 99)},
	{"of other tokens", changed(12+4*(3+20), 7)},
	{"cut before its end", resized(func(n int64) int64 { return n - 10 })},
	{"cut in its tokens", resized(func(n int64) int64 { return 100 })},
	{"empty", resized(func(n int64) int64 { return 0 })},
	{"a byte too long", resized(func(n int64) int64 { return n + 1 })},
	{"a gigabyte too long", resized(func(n int64) int64 { return n + 1<<30 })},
	{"no slot file", changed(0, 'x')},
	{"of too many tokens", changed(11, 0x7f)},
	{"not there", os.Remove},
}

func resized(to func(n int64) int64) func(string) error {
	return func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, max(0, to(info.Size())))
	}
}

func changed(at int64, to byte) func(string) error {
	return func(path string) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt([]byte{to}, at)
		return errors.Join(err, f.Close())
	}
}

// attach starts a server with a folder for slots, and a front that somebody told of it. what is between them may change what they say.
func (r *rig) attach(ctx context.Context, base, slots string) (*front, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	store, err := r.folder("store")
	if err != nil {
		return nil, err
	}
	f, err := r.serveAt(ctx, port, filepath.Join(store, "store"), []string{"--attach", base, "--slot-dir", slots, "--listen", "127.0.0.1:" + port})
	if err != nil {
		return nil, err
	}
	return f, f.ready(ctx)
}

// damaged has slot files changed after the server wrote them, or before it reads them.
func (r *rig) damaged(ctx context.Context, want map[string]string, action string, change func(path string) error) (string, error) {
	slots, err := r.folder("slots")
	if err != nil {
		return "", err
	}
	server, err := r.alone(ctx, append([]string{"--slot-save-path", slots + "/"}, faultArgs...)...)
	if err != nil {
		return "", err
	}
	defer server.kill()
	to, err := url.Parse(server.url)
	if err != nil {
		return "", err
	}
	var on atomic.Bool
	var done atomic.Int64
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !on.Load() || req.Method != http.MethodPost || req.URL.Query().Get("action") != action {
			proxy.ServeHTTP(w, req)
			return
		}
		body, err := io.ReadAll(req.Body)
		var file struct{ Filename string }
		if err == nil {
			err = json.Unmarshal(body, &file)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		path := filepath.Join(slots, file.Filename)
		if action == "restore" {
			err = change(path)
			proxy.ServeHTTP(w, req)
		} else {
			answer := httptest.NewRecorder()
			proxy.ServeHTTP(answer, req)
			err = change(path)
			w.WriteHeader(answer.Code)
			w.Write(answer.Body.Bytes())
		}
		if err == nil {
			done.Add(1)
		}
	}))
	defer between.Close()
	f, err := r.attach(ctx, between.URL, slots)
	if err != nil {
		return "", err
	}
	defer f.kill()
	on.Store(true)
	said, err := ask(ctx, f.url, want)
	if err == nil && done.Load() == 0 {
		err = errors.New("no file was changed")
	}
	said += fmt.Sprintf(" (%d files)", done.Load())
	if !server.running() && done.Load() > 0 { // it takes some files for whole that are not, with a front or without
		return said + ", the server itself has died of it: " + server.cmd.ProcessState.String(), nil
	}
	if err != nil {
		return said, err
	}
	return said, f.end()
}

// hangs stops the server for a while.
func (r *rig) hangs(ctx context.Context, want map[string]string) (string, error) {
	store, err := r.folder("store")
	if err != nil {
		return "", err
	}
	f, err := r.serve(ctx, filepath.Join(store, "store"), nil, faultArgs...)
	if err != nil {
		return "", err
	}
	defer f.kill()
	if err := f.ready(ctx); err != nil {
		return "", err
	}
	if said, err := ask(ctx, f.url, want); err != nil {
		return said, err
	}
	status, err := f.stored(ctx)
	if err != nil {
		return "", err
	}
	if err := syscall.Kill(status.ServerPID, syscall.SIGSTOP); err != nil {
		return "", err
	}
	type result struct {
		a   answer
		err error
	}
	patient := make(chan result, len(folk))
	for _, who := range folk {
		go func() {
			a, err := must(ctx, f.url, letter(who, false))
			if err == nil && a.text != want[who] {
				err = fmt.Errorf("%s's answer is %v, alone %q", who, a, want[who])
			}
			patient <- result{a, err}
		}()
	}
	for range 3 { // clients that do not wait so long
		short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
		_, err := complete(short, f.url, letter("Ada", false))
		stop()
		if err == nil {
			return "", errors.New("a server that hangs has answered")
		}
	}
	if _, err := f.status(ctx); err != nil { // does not wait for the server
		return "", err
	}
	if err := syscall.Kill(status.ServerPID, syscall.SIGCONT); err != nil {
		return "", err
	}
	for range folk {
		if x := <-patient; x.err != nil {
			return "", x.err
		}
	}
	said, err := ask(ctx, f.url, want)
	if err != nil {
		return said, err
	}
	return said, f.end()
}

// others are what may run under the server's port when it comes back. path: another file of the model; with "same", in the place of the first.
var others = []struct {
	name, path string
	args       []string
}{
	{"another model of the same shape, in the file's place", "same", nil},
	{"another model of the same shape", "other", nil},
	{"another type of cache", "", []string{"-ctk", "bf16", "-ctv", "bf16"}},
	{"a wider type of cache", "", []string{"-ctk", "f32", "-ctv", "f32"}},
	{"fewer slots", "", []string{"-np", "1"}},
	{"the same again", "", nil},
}

// replaced ends a server that a front is attached to while nobody asks anything, and has another answer at its address.
func (r *rig) replaced(ctx context.Context, want map[string]string, path string, args []string) (string, error) {
	slots, err := r.folder("slots")
	if err != nil {
		return "", err
	}
	original, err := os.ReadFile(r.model)
	if err != nil {
		return "", err
	}
	first := filepath.Join(slots, "model.gguf")
	if err := os.WriteFile(first, original, 0o600); err != nil {
		return "", err
	}
	at, err := freePort()
	if err != nil {
		return "", err
	}
	line := func(model string, more ...string) []string {
		return append([]string{"-m", model, "-t", "1", "-tb", "1", "--slot-save-path", slots + "/"}, append(faultArgs, more...)...)
	}
	server, err := r.aloneAt(ctx, at, line(first)...)
	if err != nil {
		return "", err
	}
	defer func() { server.kill() }()
	f, err := r.attach(ctx, server.url, slots)
	if err != nil {
		return "", err
	}
	defer f.kill()
	if said, err := ask(ctx, f.url, want); err != nil {
		return said, err
	}
	if _, err := f.stored(ctx); err != nil {
		return "", err
	}
	server.kill()
	second := first
	if path != "" {
		if path == "other" {
			second = filepath.Join(slots, "other.gguf")
		}
		// The rows of the embedding, which the file ends with or begins with, trade places: another model, as good as the first.
		b := bytes.Clone(original)
		for i := len(b) - 1<<18; i+8 <= len(b); i += 8 {
			for k := range 4 {
				b[i+k], b[i+4+k] = b[i+4+k], b[i+k]
			}
		}
		if err := os.WriteFile(second+".new", b, 0o600); err != nil {
			return "", err
		}
		if err := os.Rename(second+".new", second); err != nil {
			return "", err
		}
	}
	if server, err = r.aloneAt(ctx, at, line(second, args...)...); err != nil {
		return "", err
	}
	// What the server that is there now says alone, but from another process: the front's must not be disturbed.
	port, err := freePort()
	if err != nil {
		return "", err
	}
	alone, err := r.aloneAt(ctx, port, line(second, args...)...)
	if err != nil {
		return "", err
	}
	now := map[string]string{}
	for _, who := range folk {
		a, err := must(ctx, alone.url, letter(who, true))
		if err != nil {
			return "", err
		}
		now[who] = a.text
	}
	alone.kill()
	if path != "" && now["Ada"] == want["Ada"] {
		return "", errors.New("the other model answers as the first: this shows nothing")
	}
	said, err := ask(ctx, f.url, now)
	if err != nil {
		return said, err
	}
	return said, f.end()
}
