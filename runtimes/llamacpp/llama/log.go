//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package llama

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// SetLogger sends llama.cpp's log to logger, a record a line; nil, as after [Load], sends it nowhere. llama.cpp has one log a
// process, so this goes for every Lib of the folder. The logger is called on whatever thread llama.cpp logs from, also on
// threads of C, and must not call llama.cpp.
func (l *Lib) SetLogger(logger *slog.Logger) {
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	l.log.logger = logger
}

// sink receives the log of one library.
type sink struct {
	mu        sync.Mutex
	logger    *slog.Logger
	level     slog.Level // of the line that is not complete yet
	line      strings.Builder
	listeners []*complaints
}

// sinks by library, the number of each being what its callback is told. They stay for ever, as callbacks of purego do.
var sinks struct {
	mu       sync.Mutex
	callback uintptr
	of       map[uintptr]int // by handle
	all      []*sink
}

// listen makes a library log to a sink of its own.
func (l *Lib) listen() {
	sinks.mu.Lock()
	defer sinks.mu.Unlock()
	if sinks.callback == 0 {
		sinks.callback = purego.NewCallback(heard)
		sinks.of = map[uintptr]int{}
	}
	i, ok := sinks.of[l.handle]
	if !ok {
		i = len(sinks.all)
		sinks.of[l.handle], sinks.all = i, append(sinks.all, &sink{})
	}
	l.log = sinks.all[i]
	l.logSet(sinks.callback, uintptr(i))
}

// heard is a ggml_log_callback. C calls it on threads that Go may not know: purego and Go's runtime make them known for the
// length of the call.
func heard(level uintptr, text *byte, data uintptr) uintptr {
	defer func() { _ = recover() }() // a panic of the logger must not unwind C's frames
	sinks.mu.Lock()
	s := sinks.all[data]
	sinks.mu.Unlock()
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(text), n)) != 0 {
		n++
	}
	s.take(int32(level), string(unsafe.Slice(text, n)))
	return 0
}

// Levels of enum ggml_log_level; a record of level goOn goes on with the one before.
const (
	levelDebug = 1
	levelInfo  = 2
	levelWarn  = 3
	levelError = 4
	goOn       = 5
)

// maxLineBytes bounds a line that does not end.
const maxLineBytes = 8 << 10

// take splits what is logged into lines.
func (s *sink) take(level int32, text string) {
	type line struct {
		level slog.Level
		text  string
	}
	var lines []line
	s.mu.Lock()
	end := func() {
		if t := strings.TrimRight(s.line.String(), " \r"); t != "" {
			lines = append(lines, line{s.level, t})
		}
		s.line.Reset()
	}
	if level != goOn {
		end()
		s.level = slogLevel(level)
	}
	for part := range strings.Lines(text) {
		s.line.WriteString(strings.TrimSuffix(part, "\n"))
		if strings.HasSuffix(part, "\n") || s.line.Len() > maxLineBytes {
			end()
		}
	}
	for _, l := range lines {
		for _, c := range s.listeners {
			c.add(l.level, l.text)
		}
	}
	logger := s.logger
	s.mu.Unlock()
	if logger == nil {
		return
	}
	for _, l := range lines {
		logger.Log(context.Background(), l.level, l.text)
	}
}

func slogLevel(level int32) slog.Level {
	switch level {
	case levelDebug:
		return slog.LevelDebug
	case levelWarn:
		return slog.LevelWarn
	case levelError:
		return slog.LevelError
	}
	return slog.LevelInfo
}

// complaints are the warnings and errors of one call: what a function that returns a null pointer has to say.
type complaints struct {
	errors, warnings []string
}

// maxComplaints bounds what an error repeats of the log.
const maxComplaints = 8

func (c *complaints) add(level slog.Level, text string) {
	switch {
	case level >= slog.LevelError && len(c.errors) < maxComplaints:
		c.errors = append(c.errors, text)
	case level == slog.LevelWarn && len(c.warnings) < maxComplaints:
		c.warnings = append(c.warnings, text)
	}
}

// String is the errors, or the warnings if there are none.
func (c *complaints) String() string {
	lines := c.errors
	if len(lines) == 0 {
		lines = c.warnings
	}
	if len(lines) == 0 {
		return "llama.cpp logged no reason"
	}
	return strings.Join(lines, "; ")
}

// complaintsOf runs a call and returns what was complained of meanwhile.
func (s *sink) complaintsOf(call func()) *complaints {
	c := &complaints{}
	s.mu.Lock()
	s.listeners = append(s.listeners, c)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, x := range s.listeners {
			if x == c {
				s.listeners = append(s.listeners[:i:i], s.listeners[i+1:]...)
				return
			}
		}
	}()
	call()
	return c
}
