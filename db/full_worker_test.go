package db

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// When what is reserved in the log's file is used up on a full disk, the worker comes to a checkpoint, which goes on in the
// spare, though it cannot log the removals that are due before.
func TestWorkerMakesRoomInTheLog(t *testing.T) {
	dir := t.TempDir()
	o := options()
	var full atomic.Bool
	o.fs = fullFS{vfs.OS, &full}
	o.Budget = 8 << 20 // a step is 128 KiB
	s := open(t, dir, o)
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 16)} // its refs are short
	put(t, m, p)
	for i := range 3000 { // so that few removals use up what is reserved
		if err := m.SetRef(ctx, fmt.Sprintf("%020d", i), p, RefOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	if err := m.SetRef(ctx, "expires", p, RefOptions{TTL: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	full.Store(true)
	var err error
	i := 0
	for ; i < 3000 && err == nil; i++ {
		err = s.DeleteRef(ctx, fmt.Sprintf("%020d", i))
	}
	for err == nil { // small ones, too
		err = s.DeleteRef(ctx, "expires")
	}
	if !errors.Is(err, ErrNoSpace) {
		t.Fatalf("the log is not used up after %d refs: %v", i, err)
	}
	for range 3 { // the first turn says what it could not do
		err = s.eng.turn(ctx, true)
	}
	if err != nil {
		t.Errorf("the worker: %v", err)
	}
	if err := s.DeleteRef(ctx, fmt.Sprintf("%020d", i)); err != nil {
		t.Errorf("after the worker's turn: %v", err)
	}
	full.Store(false)
}
