package db

import (
	"runtime"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// What is evicted and only the store itself still looks at comes back: a put waits for that, and does not say that there is no room.
func TestPutAwaitsShortLeases(t *testing.T) {
	o := options()
	o.Budget, o.SegmentBytes = 4<<20, 256<<10
	o.HighWater, o.LowWater = 1, 1
	s := open(t, t.TempDir(), o)
	m := model(t, s, plain())
	n := 0
	next := func() error {
		n++
		p := kv.Prompt{Tokens: tokens(n, 320)}
		_, err := m.Put(ctx, p, filled(plain(), &p, 0, 320), PutOptions{})
		return err
	}
	for s.mustStats(t).Evicted == 0 {
		if err := next(); err != nil {
			t.Fatal(err)
		}
	}
	short := s.eng.Inside().Shorts().Acquire(s.eng.Segments)
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
	for !s.eng.Inside().Shorts().Awaited() {
		select {
		case err := <-done:
			t.Fatalf("the puts ended while all that they evicted was kept: %v", err)
		default:
			runtime.Gosched()
		}
	}
	s.eng.Inside().Shorts().Release(short)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if x, err := m.Match(ctx, kv.Prompt{Tokens: tokens(n, 320)}, MatchOptions{}); err != nil || x.Tokens() != 320 {
		t.Error(err, x.Tokens())
	} else {
		x.Close()
	}
}
