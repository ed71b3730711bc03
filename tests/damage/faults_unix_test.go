//go:build unix

package damage

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"
)

// Files that are cut while they are mapped cost the blocks in them, in whichever goroutine meets it.
func TestCutUnderTheStore(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(4, runtime.GOMAXPROCS(0)))) // helpers
	seed := seedOf(t)
	spend := 8 * time.Second
	if testing.Short() {
		spend = 2 * time.Second
	}
	if s := os.Getenv("DORMOUSE_FAULTS"); s != "" {
		var err error
		if spend, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	cuts, done, odd := map[string]int{}, map[string]int{}, map[string]int{}
	intact, all, rounds := 0, 0, 0
	for start := time.Now(); rounds == 0 || time.Since(start) < spend; rounds++ {
		c := newCutting(t)
		files := []string{"segments"}
		if rounds%3 > 0 {
			files = append(files, "segments", "index.db")
		}
		if rounds%3 > 1 {
			files = append(files, "bloom")
		}
		off := dog(func() string {
			c.mu.Lock()
			defer c.mu.Unlock()
			return fmt.Sprintf("round %d of seed %d: operations %v, errors %v, wrong %v", rounds, seed, c.done, c.odd, c.wrong)
		})
		c.work(rnd, files, cuts)
		n := c.after()
		off()
		intact, all = intact+n, all+len(c.kept)
		for k, n := range c.done {
			done[k] += n
		}
		for k, n := range c.odd {
			odd[k] += n
		}
		for _, w := range c.wrong {
			t.Errorf("round %d: %s", rounds, w)
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d rounds, cuts %v, operations %v; %d of %d prompts were not hit and came back in full", rounds, cuts, done, intact, all)
	for k, n := range odd {
		t.Logf("%6d times: %s", n, k)
	}
}
