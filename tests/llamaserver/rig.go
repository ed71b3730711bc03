//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// settings are the flags.
type settings struct {
	model  string
	tiny   bool // the model is the one of testdata: small prompts
	rounds int
	time   time.Duration
	times  int
	only   string
	tokens int
	quick  bool // fewer of everything, for tests
}

// tinyModel is a trained model of 1 MB that stands in the tree.
const tinyModel = "runtimes/llamacpp/testdata/stories260K-f32.gguf"

// rig has what all subcommands need: the command, a server's program, a model, and a folder for everything.
type rig struct {
	settings
	say      io.Writer
	dir      string
	dormouse string
	server   string
	version  string
	procs    []*process
}

func newRig(s settings, say io.Writer) (*rig, error) {
	if _, err := os.Stat(tinyModel); err != nil {
		return nil, fmt.Errorf("%w: run this from the project's root", err)
	}
	dir, err := os.MkdirTemp("", "dormouse-llamaserver-")
	if err != nil {
		return nil, err
	}
	return &rig{settings: s, say: say, dir: dir}, nil
}

// note tells who waits what is going on.
func (r *rig) note(format string, args ...any) {
	fmt.Fprintf(r.say, "llamaserver: "+format+"\n", args...)
}

// prepare finds or fetches server and model, and builds the command.
func (r *rig) prepare(ctx context.Context, tiny bool) error {
	r.tiny = r.model == "" && (tiny || r.quick)
	need := []string{"DORMOUSE_LLAMA_SERVER"}
	if r.model == "" && !r.tiny {
		need = append(need, "DORMOUSE_LLAMA_MODEL")
	}
	for _, name := range need {
		if os.Getenv(name) != "" {
			continue
		}
		r.note("%s is not set: running tests/llama/fetch.sh and server.sh", name)
		if err := r.fetch(ctx); err != nil {
			return err
		}
	}
	r.server = os.Getenv("DORMOUSE_LLAMA_SERVER")
	switch {
	case r.tiny:
		r.model = tinyModel
	case r.model == "":
		r.model = os.Getenv("DORMOUSE_LLAMA_MODEL")
	}
	model, err := filepath.Abs(r.model) // a front that is attached to a server does not know its folder
	if err != nil {
		return err
	}
	r.model = model
	said, err := exec.CommandContext(ctx, r.server, "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s --version: %w: %s", r.server, err, said)
	}
	r.version = strings.TrimSpace(string(said))
	for line := range strings.Lines(r.version) {
		if v, ok := strings.CutPrefix(line, "version:"); ok {
			r.version = strings.TrimSpace(v)
		}
	}
	r.dormouse = filepath.Join(r.dir, "dormouse")
	build := exec.CommandContext(ctx, "go", "build", "-o", r.dormouse, "./tools/dormouse")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./tools/dormouse: %w: %s", err, said)
	}
	return nil
}

// fetch runs the scripts that fetch servers and models, and takes over the variables that they print.
func (r *rig) fetch(ctx context.Context) error {
	script := "bash tests/llama/fetch.sh >&2 && bash tests/llama/server.sh >&2 && . .cache/llama/env.sh && env -0"
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Stderr = r.say
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("fetching servers and models: %w", err)
	}
	for e := range bytes.SplitSeq(out, []byte{0}) {
		if name, value, ok := strings.Cut(string(e), "="); ok && strings.HasPrefix(name, "DORMOUSE_LLAMA_") {
			os.Setenv(name, value)
		}
	}
	return nil
}

func (r *rig) close() error {
	for _, p := range r.procs {
		p.kill()
	}
	return os.RemoveAll(r.dir)
}

// lastWords are the ends of what the processes have logged.
func (r *rig) lastWords() string {
	var b strings.Builder
	for _, p := range r.procs {
		text, _ := os.ReadFile(p.log)
		fmt.Fprintf(&b, "-- %s\n%s\n", p.name, text[max(0, len(text)-4000):])
	}
	return b.String()
}

// folder makes a new folder.
func (r *rig) folder(name string) (string, error) { return os.MkdirTemp(r.dir, name+"-") }

// process is a program that runs, with a file that takes what it prints.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	url  string
	done chan struct{}
}

func (r *rig) start(name string, env []string, line ...string) (*process, error) {
	log, err := os.CreateTemp(r.dir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{name: name, cmd: exec.Command(line[0], line[1:]...), log: log.Name(), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = log, log, append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { defer close(p.done); p.cmd.Wait() }()
	r.procs = append(r.procs, p)
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill kills the process, if it runs, and waits for its end.
func (p *process) kill() {
	p.cmd.Process.Signal(syscall.SIGCONT)
	p.cmd.Process.Kill()
	<-p.done
}

// end asks the process to end and waits for it.
func (p *process) end() error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.kill()
		return fmt.Errorf("%s did not end within a minute of SIGTERM", p.name)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s ended with %v", p.name, p.cmd.ProcessState)
	}
	return nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

// until asks every few milliseconds until something is so.
func until(ctx context.Context, what string, is func() (bool, error)) error {
	for end := time.Now().Add(2 * time.Minute); ; {
		ok, err := is()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", what, err)
		case ok:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%s: not within two minutes", what)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// serverArgs are the arguments that servers are started with, behind a front or alone.
func (r *rig) serverArgs(more ...string) []string {
	return append([]string{"-m", r.model, "-t", "1", "-tb", "1"}, more...)
}

// alone starts a server without a front, with a folder for slot files of its own.
func (r *rig) alone(ctx context.Context, more ...string) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return r.aloneAt(ctx, port, r.serverArgs(more...)...)
}

func (r *rig) aloneAt(ctx context.Context, port string, args ...string) (*process, error) {
	p, err := r.start("server-alone", nil, append([]string{r.server, "--port", port}, args...)...)
	if err != nil {
		return nil, err
	}
	p.url = "http://127.0.0.1:" + port
	return p, until(ctx, "a server alone gets ready", func() (bool, error) {
		if !p.running() {
			return false, errors.New("it has ended")
		}
		resp, err := http.Get(p.url + "/health")
		if err != nil {
			return false, nil
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
}

// front is a "dormouse serve" that runs.
type front struct {
	*process
	r     *rig
	store string
}

// serve starts a front with a server behind it. flags are those of dormouse serve.
func (r *rig) serve(ctx context.Context, store string, flags []string, server ...string) (*front, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	line := append([]string{"--"}, append([]string{r.server}, append(r.serverArgs(server...), "--port", port)...)...)
	return r.serveAt(ctx, port, store, flags, line...)
}

func (r *rig) serveAt(ctx context.Context, port, store string, flags []string, rest ...string) (*front, error) {
	line := append([]string{r.dormouse, "serve", "--store", store}, append(flags, rest...)...)
	p, err := r.start("dormouse", []string{"XDG_RUNTIME_DIR=" + r.dir}, line...)
	if err != nil {
		return nil, err
	}
	p.url = "http://127.0.0.1:" + port
	return &front{p, r, store}, nil
}

// status is what dormouse status says.
func (f *front) status(ctx context.Context) (s llamaserver.Status, err error) {
	cmd := exec.CommandContext(ctx, f.r.dormouse, "status", "--json", "--store", f.store)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+f.r.dir)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("dormouse status: %w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return s, err
	}
	return s, json.Unmarshal(out, &s)
}

// ready waits until the front keeps the prompts of the server's model.
func (f *front) ready(ctx context.Context) error {
	return until(ctx, "the front keeps the server's prompts", func() (bool, error) {
		if !f.running() {
			return false, errors.New("it has ended")
		}
		s, err := f.status(ctx)
		if err != nil {
			return false, nil // it is starting
		}
		if len(s.Models) > 0 && s.Models[0].Refused != "" && s.Store == "open" && !strings.HasPrefix(s.Models[0].Refused, "no_store") {
			return false, errors.New("it keeps nothing: " + s.Models[0].Refused)
		}
		return len(s.Models) > 0 && s.Models[0].Fingerprint != "", nil
	})
}

// stored waits until no slot has anything that is not stored. It gives the status then.
func (f *front) stored(ctx context.Context) (s llamaserver.Status, err error) {
	err = until(ctx, "all is stored", func() (bool, error) {
		if s, err = f.status(ctx); err != nil {
			return false, err
		}
		for _, m := range s.Models {
			if m.Storing {
				return false, nil
			}
			for _, sl := range m.Slots {
				if sl.Busy || sl.Unsaved {
					return false, nil
				}
			}
		}
		return true, nil
	})
	return s, err
}

// killServer kills the server and waits until the front has another.
func (f *front) killServer(ctx context.Context) error {
	before, err := f.status(ctx)
	if err != nil {
		return err
	}
	if err := syscall.Kill(before.ServerPID, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing the server, process %d: %w", before.ServerPID, err)
	}
	if err := until(ctx, "the server is started again", func() (bool, error) {
		s, err := f.status(ctx)
		return s.Started > before.Started && s.ServerPID != before.ServerPID && s.ServerPID != 0, err
	}); err != nil {
		return err
	}
	return f.ready(ctx)
}

// inner is the address of the server behind the front.
func (f *front) inner(ctx context.Context) (string, error) {
	port, err := f.argument(ctx, "--port")
	return "http://127.0.0.1:" + port, err
}

// gone reports whether no such process runs. A zombie is none.
func gone(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) != nil
	}
	_, after, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

// join is an address with a path.
func join(base, path string) string {
	u, err := url.JoinPath(base, path)
	if err != nil {
		panic(err) // both are ours
	}
	return u
}
