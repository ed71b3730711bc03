package engine_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A full disk without room for a barrier says both: that there is none, and why.
func TestNoBarrierOnAFullDisk(t *testing.T) {
	var full atomic.Bool
	o := storetest.Options()
	disk := storetest.Full(&full)
	s := storetest.OpenOn(t, disk, t.TempDir(), o)
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	storetest.OK(t, s.Sync(t.Context()))
	full.Store(true)
	for err := error(nil); err == nil; {
		_, err = storetest.Engine(s).Inside().LogBarrier(0)
	}
	if err := storetest.Engine(s).Barrier(storetest.Engine(s).Inside().Wal().LastLSN()); !errors.Is(err, db.ErrNoBarrier) || !errors.Is(err, db.ErrNoSpace) {
		t.Errorf("a barrier without room: %v", err)
	}
	full.Store(false)
	if err := s.Sync(t.Context()); err != nil {
		t.Error(err)
	}
}
