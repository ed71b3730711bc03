package db

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A full disk without room for a barrier says both: that there is none, and why.
func TestNoBarrierOnAFullDisk(t *testing.T) {
	var full atomic.Bool
	o := options()
	o.fs = fullFS{vfs.OS, &full}
	s := open(t, t.TempDir(), o)
	put(t, model(t, s, plain()), kv.Prompt{Tokens: tokens(1, 64)})
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	for err := error(nil); err == nil; {
		_, err = s.eng.Inside().LogBarrier(0)
	}
	if err := s.eng.Barrier(s.eng.Inside().Wal().LastLSN()); !errors.Is(err, ErrNoBarrier) || !errors.Is(err, ErrNoSpace) {
		t.Errorf("a barrier without room: %v", err)
	}
	full.Store(false)
	if err := s.Sync(ctx); err != nil {
		t.Error(err)
	}
}

// A record of another block's place is damage to whoever looks at it, with file and offset.
func TestViewOfAnotherRecordIsDamage(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p, other := kv.Prompt{Tokens: tokens(1, 16)}, kv.Prompt{Tokens: tokens(2, 16)}
	put(t, m, p)
	put(t, m, other)
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	y, err := m.Match(ctx, other, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	x.held.Found.Hits[0].Groups[0].Loc = y.held.Found.Hits[0].Groups[0].Loc
	var bad *CorruptError
	err = x.View(ctx, func(StoredPlane) error { return nil })
	if !errors.As(err, &bad) || bad.File == "" || bad.Offset != y.held.Found.Hits[0].Groups[0].Loc.Offset {
		t.Errorf("view: %v", err)
	}
}
