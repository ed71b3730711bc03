package engine_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
)

// In Power mode a model is in the store when that is durable, also for who asks for it while another call registers it.
func TestModelOfAnotherCallIsDurable(t *testing.T) {
	var bad atomic.Bool
	o := storetest.Options()
	o.Durability = db.Power
	s, err := storetest.TryOpen(storetest.Failing(func(c storetest.Call) error {
		if bad.Load() && c.Kind == "sync" && c.InLog() {
			return errors.New("the disk is gone")
		}
		return nil
	}), t.TempDir(), o)
	storetest.OK(t, err)
	defer s.Close()
	storetest.Must(s.Register(t.Context(), crashtest.Plain()))(t)
	bad.Store(true)
	if _, err := s.Register(t.Context(), crashtest.Windowed(16)); err == nil { // it is known now, and its frame not durable
		t.Fatal("the log cannot be synced")
	}
	if _, err := s.Register(t.Context(), crashtest.Windowed(16)); err == nil {
		t.Error("a model was acknowledged whose frame is not durable")
	}
	if _, err := s.Register(t.Context(), crashtest.Plain()); err != nil { // reads go on
		t.Error(err)
	}
}
