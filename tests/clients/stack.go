//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// stack is a "dormouse serve" with a llama-server behind it, on a store of its own. It is started again with the same command.
type stack struct {
	programs
	dir   string // the store, and what processes print
	port  string
	front []string // flags of dormouse serve, more than those of every stack

	cmd    *exec.Cmd
	done   chan struct{} // closed when cmd has ended
	server int           // the process of llama-server
}

// programs are what every stack is made of.
type programs struct {
	dormouse, server, model string
	flags                   []string // of llama-server
}

func newStack(p programs, dir string, front ...string) (*stack, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return &stack{programs: p, dir: dir, port: strconv.Itoa(l.Addr().(*net.TCPAddr).Port), front: front}, os.MkdirAll(dir, 0o700)
}

func (s *stack) url() string       { return "http://127.0.0.1:" + s.port }
func (s *stack) store() string     { return filepath.Join(s.dir, "store") }
func (s *stack) logs() string      { return filepath.Join(s.dir, "log") }
func (s *stack) environ() []string { return append(os.Environ(), "XDG_RUNTIME_DIR="+s.dir) }

// start starts both, and returns at once.
func (s *stack) start() error {
	log, err := os.OpenFile(s.logs(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	line := slices.Concat([]string{"serve", "--store", s.store(), "--log", "debug"}, s.front, []string{"--", s.programs.server, "-m", s.model, "--port", s.port}, s.flags)
	s.cmd = exec.Command(s.dormouse, line...)
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.Env = log, log, s.environ()
	if err := s.cmd.Start(); err != nil {
		return err
	}
	done, cmd := make(chan struct{}), s.cmd
	go func() { defer close(done); cmd.Wait() }()
	s.done, s.server = done, 0
	return nil
}

// ready waits until /health says so, as a person does who looks before starting an agent.
func (s *stack) ready(ctx context.Context) error {
	return s.until(ctx, "the server gets ready", func() bool {
		resp, err := local.Get(s.url() + "/health")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// keeps waits until the front keeps the prompts of the server's model: at its first start with a model it has to hash the file.
func (s *stack) keeps(ctx context.Context) error {
	return s.until(ctx, "the front keeps prompts", func() bool {
		st, err := s.status(ctx)
		return err == nil && len(st.Models) > 0 && st.Models[0].Fingerprint != ""
	})
}

// until asks every few milliseconds until something is so.
func (s *stack) until(ctx context.Context, what string, is func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for !is() {
		select {
		case <-s.done:
			return fmt.Errorf("%s: dormouse serve has ended: %s", what, s.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %s", what, ctx.Err(), s.lastWords())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// status is what dormouse status says.
func (s *stack) status(ctx context.Context) (st llamaserver.Status, err error) {
	cmd := exec.CommandContext(ctx, s.dormouse, "status", "--json", "--store", s.store())
	cmd.Env = s.environ()
	out, err := cmd.Output()
	if err != nil {
		return st, err
	}
	return st, json.Unmarshal(out, &st)
}

// stored waits until no slot has anything that is not in the store.
func (s *stack) stored(ctx context.Context) error {
	return s.until(ctx, "all is stored", func() bool {
		st, err := s.status(ctx)
		if err != nil || len(st.Models) == 0 || st.Models[0].Fingerprint == "" {
			return false
		}
		s.server = st.ServerPID
		return !slices.ContainsFunc(st.Models, func(m llamaserver.ModelStatus) bool {
			return m.Storing || slices.ContainsFunc(m.Slots, func(sl llamaserver.SlotStatus) bool { return sl.Busy || sl.Unsaved })
		})
	})
}

// kill kills the front and the server with SIGKILL, and waits for the end of both.
func (s *stack) kill(ctx context.Context) error {
	if s.cmd == nil {
		return nil
	}
	if s.server == 0 {
		if st, err := s.status(ctx); err == nil {
			s.server = st.ServerPID
		}
	}
	s.cmd.Process.Kill()
	<-s.done
	s.cmd = nil
	if s.server == 0 {
		return nil // it had not started one: the kernel ends what it starts now
	}
	if err := syscall.Kill(s.server, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	for end := time.Now().Add(10 * time.Second); !gone(s.server); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("the server, process %d, does not end", s.server)
		}
	}
	return nil
}

// gone reports whether no such process runs. A zombie, which nobody has buried, is none.
func gone(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) != nil
	}
	_, after, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

// restart kills both and starts them again with the same command.
func (s *stack) restart(ctx context.Context) error {
	if err := s.stored(ctx); err != nil {
		return err
	}
	if err := s.kill(ctx); err != nil {
		return err
	}
	return s.start()
}

// lastWords is the end of what both have printed.
func (s *stack) lastWords() string {
	text, _ := os.ReadFile(s.logs())
	return strings.TrimSpace(string(text[max(0, len(text)-2000):]))
}
