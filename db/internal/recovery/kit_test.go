package recovery_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/loc"
)

// What the tests of crashes and of failing disks share besides: conversations (chats_test.go), a script of operations
// (script_test.go) done on a store (run_test.go) by one process after the other (process_test.go), a journal of
// what was acknowledged (journal_test.go), with which a store that comes back is compared (compare_test.go).

// crashRuns does one run after the other, each with a seed of its own, for seconds, or for an hour, until one fails.
func crashRuns(t *testing.T, run func(seed uint64)) {
	seed, all := crashtest.Seed(t)
	d := 4 * time.Second
	if all {
		d = time.Hour
	}
	runs := uint64(0)
	for until := time.Now().Add(d); time.Now().Before(until) && !t.Failed(); runs++ {
		run(seed + runs)
	}
	t.Logf("%d runs", runs)
}

// within fails the test if fn hangs.
func within(t testing.TB, d time.Duration, what string, fn func()) {
	t.Helper()
	timer := time.AfterFunc(d, func() {
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "%s hangs\n%s\n", what, buf[:runtime.Stack(buf, true)])
		os.Exit(2)
	})
	defer timer.Stop()
	fn()
}

func crashTail(log []string) string { return strings.Join(log[max(0, len(log)-60):], "\n\t") }

// afterCut is a copy of an open store as the next boot may find it: a power cut took the first pages of what lies at lost, and the index if
// that is said.
func afterCut(t *testing.T, s *db.Store, noIndex bool, lost ...loc.Loc) (image string) {
	t.Helper()
	image = storetest.Copy(t, s.Dir())
	for _, l := range lost {
		storetest.ZeroPlace(t, image, l, 4096)
	}
	storetest.CutPower(t, image, noIndex)
	return image
}
