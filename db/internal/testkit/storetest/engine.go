package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"
	"weak"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// Engine is what a store runs on, or ran on last. Suspend, and a rebuild of the index, end it. The store was opened by this package.
func Engine(s *db.Store) *engine.Engine {
	return diskOf(s).engine.Load().(weak.Pointer[engine.Engine]).Value()
}

// MoveAll moves the records that pick wants, and makes no checkpoint.
func MoveAll(t testing.TB, s *db.Store, pick func(x index.Entry) bool) {
	t.Helper()
	e := Engine(s)
	if err := e.Segments.SealAll(); err != nil {
		t.Fatal(err)
	}
	var all []index.Entry
	v := e.View()
	err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		if pick(x) {
			all = append(all, x)
		}
		return true
	})
	v.Release()
	if err != nil || len(all) == 0 {
		t.Fatal(err, len(all))
	}
	for _, x := range all {
		if ok, err := e.Space.Inside().Move(t.Context(), x); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
}

// Again is what call returns. It is called once more where it found the index damaged.
func Again(call func() error) error {
	err := call()
	if errors.Is(err, db.ErrIndexDamaged) {
		err = call()
	}
	return err
}

// DoubtIndex has the store find its index damaged, which is built anew in the background. In a store that was closed nothing does.
func DoubtIndex(s *db.Store) {
	if e := Engine(s); e != nil { // the garbage collector may have had it
		e.Ledger.OnDamage(fmt.Errorf("a test says so: %w", index.ErrDamaged))
	}
}

// RebuildIndex is DoubtIndex, and waits until the index is built anew. It doubts again and again: a rebuild before it that is about to end
// hears of nothing more.
func RebuildIndex(s *db.Store) {
	for was := Engine(s); Engine(s) == was; time.Sleep(time.Millisecond) {
		DoubtIndex(s)
		if _, err := s.Stats(); err != nil { // suspended or closed
			return
		}
	}
}
