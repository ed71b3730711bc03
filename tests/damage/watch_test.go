package damage

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"
)

// hang is how many seconds one case may take: only a case that never ends takes so long.
const hang = 120

// dog ends the process, with all stacks, unless it is called off in time. It counts ticks, which a process that somebody
// stopped for a while does not get.
func dog(what func() string) (off func()) {
	tick, done := time.NewTicker(time.Second), make(chan struct{})
	go func() {
		for range hang {
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
		fmt.Fprintf(os.Stderr, "%s\nHANGS: %s\n", stacks(), what())
		os.Exit(3)
	}()
	return func() { tick.Stop(); close(done) }
}

// stacks are those of all goroutines. What they wait for comes last: the end is all that some logs keep.
func stacks() string {
	var b bytes.Buffer
	pprof.Lookup("goroutine").WriteTo(&b, 2)
	all := strings.Split(strings.TrimSpace(b.String()), "\n\n")
	waits := func(stack string) int {
		for i, in := range []string{"testing.(*T).Run(", "lifecycle.(*Lifecycle).Enter", "[select", "[chan receive", "[sync.Cond.Wait", "[sync."} {
			if strings.Contains(stack, in) {
				return i
			}
		}
		return math.MaxInt
	}
	slices.SortStableFunc(all, func(x, y string) int { return cmp.Compare(waits(x), waits(y)) })
	return strings.Join(all, "\n\n")
}

// watch runs do, which must end.
func watch(t *testing.T, what string, do func()) {
	t.Helper()
	defer dog(func() string { return what })()
	do()
}
