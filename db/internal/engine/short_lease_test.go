package engine_test

import (
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// What is evicted and only the store itself still looks at comes back: a put waits for that, and does not say that there is no room.
func TestPutAwaitsShortLeases(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 4<<20, 256<<10
	o.HighWater, o.LowWater = 1, 1
	s, m := storetest.Fresh(t, o, crashtest.Plain())
	n := 0
	next := func() error { n++; return putNth(t, m, n) }
	for storetest.Stats(t, s).Evicted == 0 {
		storetest.OK(t, next())
	}
	set := storetest.Engine(s).Segments
	short := set.AcquireShort()
	done := make(chan error)
	go func() {
		for range 20 {
			if err := next(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for held := int64(0); held == 0 || held != set.Held(); time.Sleep(20 * time.Millisecond) { // until nothing more is evicted
		held = set.Held()
		select {
		case err := <-done:
			t.Fatalf("the puts ended while all that they evicted was kept: %v", err)
		default:
		}
	}
	short.Release()
	storetest.OK(t, <-done)
	if x, err := m.Match(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(n, 320)}, db.MatchOptions{}); err != nil || x.Tokens() != 320 {
		t.Error(err, x.Tokens())
	} else {
		x.Close()
	}
}
