package db

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A store whose index is found damaged, and cannot be rebuilt just now, suspends itself: Resume goes on with all that it had.
func TestIndexCannotBeRebuiltNow(t *testing.T) {
	o := options()
	var denied atomic.Bool
	o.fs = oneDeniedFS{vfs.OS, "0000000000000001.seg", &denied}
	s := open(t, t.TempDir(), o)
	m := model(t, s, plain())
	p := kv.Tokens(tokens(1, 48)...)
	put(t, m, p)
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	denied.Store(true)
	losesIndex(t, s)
	if _, _, err := m.Probe(ctx, p, MatchOptions{}); !errors.Is(err, ErrSuspended) {
		t.Errorf("probe while the index cannot be rebuilt: %v", err)
	}
	if err := s.Resume(ctx); !errors.Is(err, syscall.EIO) {
		t.Errorf("resumed: %v", err)
	}
	denied.Store(false)
	if err := s.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 48)
	if err := x.View(ctx, func(StoredPlane) error { return nil }); err != nil || x.Tokens() != 48 {
		t.Errorf("a match that was open covers %d tokens, %v", x.Tokens(), err)
	}
	put(t, m, kv.Tokens(tokens(2, 48)...))
}
