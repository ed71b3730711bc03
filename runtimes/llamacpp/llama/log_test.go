//go:build (linux && !android) || (darwin && !ios)

package llama

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/ebitengine/purego"
)

// records is a handler that keeps what it is given.
type records struct {
	mu    sync.Mutex
	level map[slog.Level]int
	lines map[string]int
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) WithGroup(string) slog.Handler            { return r }
func (r *records) Handle(_ context.Context, x slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.level[x.Level]++
	r.lines[x.Message]++
	return nil
}

func listenTo(t *testing.T, lib *Lib) *records {
	t.Helper()
	r := &records{level: map[slog.Level]int{}, lines: map[string]int{}}
	lib.SetLogger(slog.New(r))
	t.Cleanup(func() { lib.SetLogger(nil) })
	return r
}

// What is wrong with a model is in the error, whether or not there is a logger; and the logger hears it too.
func TestReasonOfFailure(t *testing.T) {
	lib := load(t)
	dir := t.TempDir()
	file := ggufgen.LLaMA(1, 2, 64)
	for name, x := range map[string]struct {
		file []byte
		want string
	}{
		"cut":   {file[:len(file)/2], "tensor"},
		"text":  {[]byte("no model at all, only words"), "magic"},
		"empty": {nil, "magic"},
	} {
		path := filepath.Join(dir, name+".gguf")
		if err := os.WriteFile(path, x.file, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, logged := range []bool{false, true} {
			var heard *records
			if lib.SetLogger(nil); logged {
				heard = listenTo(t, lib)
			}
			m, err := lib.LoadModel(path, ModelOptions{CPUOnly: true})
			if err == nil {
				m.Close()
				t.Fatalf("%s was loaded", name)
			}
			if t.Log(err); !strings.Contains(err.Error(), x.want) {
				t.Errorf("%s: the error does not speak of %q: %v", name, x.want, err)
			}
			if logged && heard.level[slog.LevelError] == 0 {
				t.Errorf("%s: the logger heard no error: %v", name, heard.lines)
			}
		}
	}
	if m, err := lib.LoadModel(filepath.Join(dir, "none.gguf"), ModelOptions{}); err == nil {
		m.Close()
		t.Error("a model that does not exist was loaded")
	} else if !strings.Contains(err.Error(), "No such file") {
		t.Errorf("a model that does not exist: %v", err)
	}
}

// Lines are whole, whatever pieces they come in, and a logger that panics takes nothing with it.
func TestLines(t *testing.T) {
	lib := load(t)
	r := listenTo(t, lib)
	for _, x := range []struct {
		level int32
		text  string
	}{{levelInfo, "one"}, {goOn, " two"}, {goOn, "\nthree\n"}, {levelError, "four"}, {levelWarn, "\n"}, {levelWarn, "five\n\nsix"}, {levelDebug, ""}} {
		lib.log.take(x.level, x.text)
	}
	for line, level := range map[string]slog.Level{"one two": slog.LevelInfo, "three": slog.LevelInfo, "four": slog.LevelError, "five": slog.LevelWarn, "six": slog.LevelWarn} {
		if r.lines[line] != 1 || r.level[level] == 0 {
			t.Errorf("%q was heard %d times: %v", line, r.lines[line], r.lines)
		}
	}
	lib.SetLogger(slog.New(panics{}))
	call(lib, levelInfo, "panic\n")
	if _, err := lib.LoadModel("none.gguf", ModelOptions{}); err == nil {
		t.Error("a model that does not exist was loaded")
	}
}

type panics struct{ *records }

func (panics) Enabled(context.Context, slog.Level) bool { panic("handler") }

// call logs through C, on this thread.
func call(lib *Lib, level int32, text string) {
	b := append([]byte(text), 0)
	var pin runtime.Pinner // the callback may move the stack
	pin.Pin(&b[0])
	defer pin.Unpin()
	purego.SyscallN(sinks.callback, uintptr(level), uintptr(unsafe.Pointer(&b[0])), uintptr(sinks.of[lib.handle]))
}

// Threads that Go did not make log as well as its own, many at once, while memory is collected and models are loaded.
func TestLogFromThreadsOfC(t *testing.T) {
	lib := load(t)
	var create func(thread *uintptr, attributes, start, arg uintptr) int32
	var join func(thread, result uintptr) int32
	for name, f := range map[string]any{"pthread_create": &create, "pthread_join": &join} {
		address, err := purego.Dlsym(purego.RTLD_DEFAULT, name)
		if err != nil {
			t.Skipf("SKIPPED, no threads of C: %v", err)
		}
		purego.RegisterFunc(f, address)
	}
	path := writeModel(t, ggufgen.LLaMA(1, 2, 64))
	const rounds, threads, each = 8, 48, 25
	r := listenTo(t, lib)
	start := purego.NewCallback(func(arg uintptr) uintptr {
		for i := range each {
			call(lib, levelWarn, fmt.Sprintf("thread %d says %d\n", arg, i))
		}
		return 0
	})
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			runtime.GC()
			m, err := lib.LoadModel(path, ModelOptions{CPUOnly: true})
			if err != nil {
				t.Error(err)
				return
			}
			m.Close()
		}
	})
	for range rounds {
		var made [threads]uintptr
		for i := range made {
			if e := create(&made[i], 0, start, uintptr(i)); e != 0 {
				t.Fatalf("pthread_create: %d", e)
			}
		}
		for _, x := range made {
			join(x, 0)
		}
	}
	close(stop)
	others.Wait()
	for i := range threads {
		for j := range each {
			if line := fmt.Sprintf("thread %d says %d", i, j); r.lines[line] != rounds {
				t.Fatalf("%q was heard %d times of %d", line, r.lines[line], rounds)
			}
		}
	}
}

// Nil and closed things are errors, not crashes.
func TestNilAndClosed(t *testing.T) {
	lib := load(t)
	path := writeModel(t, ggufgen.LLaMA(1, 2, 64))
	m, err := lib.LoadModel(path, ModelOptions{CPUOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.NewContext(ContextOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	m.Close()
	for _, m := range []*Model{m, nil} {
		if _, err := m.NewContext(ContextOptions{}); err == nil {
			t.Error("a context of a closed model")
		}
		if _, err := m.Tokenize("a", true); err == nil {
			t.Error("tokens of a closed model")
		}
	}
	for _, c := range []*Context{c, nil} {
		if err := c.Decode([]int32{1}, 0, 0); err == nil {
			t.Error("a closed context evaluates")
		}
	}
	if c.Logits(-1) != nil {
		t.Error("a closed context has logits")
	}
}
