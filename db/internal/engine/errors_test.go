package engine_test

import (
	"errors"
	"os"
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
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
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

// A record of another block's place is damage to whoever looks at it, with file and offset.
func TestViewOfAnotherRecordIsDamage(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	p, other := kv.Prompt{Tokens: crashtest.Tokens(1, 16)}, kv.Prompt{Tokens: crashtest.Tokens(2, 16)}
	storetest.Put(t, m, p)
	storetest.Put(t, m, other)
	x, err := m.Match(t.Context(), p, db.MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	at, from := storetest.Place(t, s, m, p, 0, 0), storetest.Place(t, s, m, other, 0, 0)
	b, err := os.ReadFile(storetest.SegmentPath(s.Dir(), from.Segment))
	if err != nil {
		t.Fatal(err)
	}
	storetest.Write(t, storetest.SegmentPath(s.Dir(), at.Segment), at.Offset, b[from.Offset:from.Offset+from.Length])
	var bad *db.CorruptError
	err = x.View(t.Context(), func(db.StoredPlane) error { return nil })
	if !errors.As(err, &bad) || bad.File == "" || bad.Offset != at.Offset {
		t.Errorf("view: %v", err)
	}
}
