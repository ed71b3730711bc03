package llamaserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a llama-server that a front has started. It is started again when it ends by itself.
type Process struct {
	// Output takes what the server prints. Nil: this process's own.
	Output io.Writer
	// Unseen is called when a server that something else starts (bubblewrap, a script) has ended before it answered: in a sandbox with mounts of its own it refuses to
	// start with a folder for slot files that it does not see. If it gives true, the server is started once more without one. Nil: it is not.
	Unseen func() bool

	args    *Arguments
	port    int
	slots   string
	log     *slog.Logger
	started func() // called each time that it was started

	mu      sync.Mutex
	cmd     *exec.Cmd
	state   string
	stopped bool
	ended   chan struct{} // closed when a server ended by itself
	done    chan struct{}
	stop    chan struct{}
}

// How long a server that ends by itself has to wait until it is started again.
const (
	firstPause = 500 * time.Millisecond
	mostPause  = 30 * time.Second
	calm       = time.Minute // who ran for so long begins with the first pause again
)

// NewProcess finds a free port for a server. It is not started before Run.
func NewProcess(args *Arguments, log *slog.Logger) (*Process, error) {
	if _, err := exec.LookPath(args.Program); err != nil {
		return nil, fmt.Errorf("the server cannot be started: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, err
	}
	return &Process{args: args, port: port, log: log, ended: make(chan struct{}), done: make(chan struct{}), stop: make(chan struct{}), state: "not started"}, nil
}

// URL is where the server answers.
func (p *Process) URL() *url.URL {
	scheme := "http"
	if p.args.Cert != "" && p.args.Key != "" {
		scheme = "https"
	}
	return &url.URL{Scheme: scheme, Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port))}
}

// PID is that of the server, 0 while it does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.cmd.Process == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Ended is closed when the server has ended by itself for the first time.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// State says in words how the server is.
func (p *Process) State() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Run keeps the server running until Stop. slots is the folder for its slot files; started is called whenever a server was started. It
// returns an error if the very first start fails.
func (p *Process) Run(slots string, started func()) error {
	p.slots, p.started = slots, started
	first := make(chan error, 1)
	go p.loop(first)
	return <-first
}

func (p *Process) loop(first chan<- error) {
	// The kernel ends the server when the thread that started it ends: this one does not before the process does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	pause := firstPause
	for ended := sync.OnceFunc(func() { close(p.ended) }); ; {
		began := time.Now()
		err := p.once(first)
		first = nil
		p.mu.Lock()
		p.cmd, p.state = nil, "stopped"
		stopped := p.stopped
		if !stopped {
			p.state = fmt.Sprintf("ended (%v), starts again", err)
		}
		p.mu.Unlock()
		if stopped {
			return
		}
		if p.slots != "" && p.args.Slots == "" && !strings.Contains(filepath.Base(p.args.Program), "llama-server") && p.Unseen != nil && p.Unseen() {
			p.slots = ""
			continue
		}
		ended()
		if time.Since(began) > calm {
			pause = firstPause
		}
		p.log.Warn("llama-server has ended by itself, it is started again", "err", err, "in", pause)
		select {
		case <-p.stop:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, mostPause)
	}
}

// once runs the server until it ends.
func (p *Process) once(first chan<- error) error {
	line := p.args.command(p.port, p.slots)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.args.env, os.Stdout, os.Stderr
	if p.Output != nil {
		cmd.Stdout, cmd.Stderr = p.Output, p.Output
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	diesWithUs(cmd.SysProcAttr)
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		if first != nil {
			first <- errors.New("llama-server was stopped before it was started")
		}
		return nil
	}
	err := cmd.Start()
	if err == nil {
		p.cmd, p.state = cmd, "running"
	}
	p.mu.Unlock()
	if first != nil {
		first <- err
	}
	if err != nil {
		return err
	}
	p.log.Info("llama-server was started", "pid", cmd.Process.Pid, "port", p.port)
	p.started()
	return cmd.Wait()
}

// Signal hands a signal on to the server.
func (p *Process) Signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return os.ErrProcessDone
	}
	return p.cmd.Process.Signal(sig)
}

// Stop ends the server: it is asked to, and killed when ctx is over.
func (p *Process) Stop(ctx context.Context) error {
	p.mu.Lock()
	running := p.cmd
	if !p.stopped {
		p.stopped = true
		close(p.stop)
	}
	p.mu.Unlock()
	if running == nil {
		return nil
	}
	if err := terminate(running.Process); err != nil {
		p.log.Debug("ending llama-server", "err", err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	err := kill(running.Process)
	<-p.done
	return err
}
