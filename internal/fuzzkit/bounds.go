package fuzzkit

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"
	"time"
)

// hang is when a parser is taken to hang: long enough for any machine that is busy with other things.
const hang = 10 * time.Minute

// crashOutput lets a worker that dies say why: the fuzzer drops what it prints when a goroutine of the code under test panics.
// The stacks go to a file in the directory that DORMOUSE_FUZZ_STACKS names.
var crashOutput = sync.OnceFunc(func() {
	dir := os.Getenv("DORMOUSE_FUZZ_STACKS")
	if dir == "" {
		return
	}
	if f, err := os.Create(filepath.Join(dir, fmt.Sprintf("stacks-%d", os.Getpid()))); err == nil {
		debug.SetCrashOutput(f, debug.CrashOptions{})
	}
})

// Bounded runs fn, which must return, and must not allocate more than limit bytes. Small objects are counted when a block of
// them is full only, which is as well: what is looked for are lengths from a file that are taken at their word.
func Bounded(t testing.TB, limit uint64, fn func()) {
	t.Helper()
	crashOutput()
	timer := time.AfterFunc(hang, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("%s hangs", t.Name()))
	})
	defer timer.Stop()
	runtime.ReadMemStats(new(runtime.MemStats)) // counts what was allocated before, half-full blocks too
	before := allocated()
	fn()
	if n := allocated() - before; n > limit {
		t.Fatalf("%d bytes allocated, at most %d expected", n, limit)
	}
}

func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
