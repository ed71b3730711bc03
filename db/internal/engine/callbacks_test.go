package engine_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A callback may use the store while somebody waits to have it to himself: neither waits for the other.
func TestCallbacksUseTheStore(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	storetest.Put(t, m, p)
	x := storetest.Match(t, m, p)
	defer x.Close()

	var wait sync.WaitGroup
	asked := make(chan struct{})
	ask := sync.OnceFunc(func() {
		wait.Go(func() {
			close(asked)
			if err := s.Suspend(t.Context()); err != nil {
				t.Error(err)
			}
		})
		<-asked
		time.Sleep(20 * time.Millisecond) // Suspend waits by now, most likely
	})
	err := x.View(t.Context(), func(db.StoredPlane) error {
		ask()
		if _, _, err := m.Probe(t.Context(), p, db.MatchOptions{}); err != nil && !errors.Is(err, db.ErrSuspended) {
			return err
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	wait.Wait()
	if _, _, err := m.Probe(t.Context(), p, db.MatchOptions{}); !errors.Is(err, db.ErrSuspended) {
		t.Errorf("probe of a suspended store: %v", err)
	}
	storetest.OK(t, s.Resume(t.Context()))
	for b, err := range s.Blocks(t.Context()) {
		storetest.OK(t, err)
		storetest.OK(t, s.Suspend(t.Context()))
		storetest.OK(t, s.Resume(t.Context()))
		_ = b
	}
}
