package db_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
)

// Another card in the slot is another store: Resume refuses it, and goes on when the first one is back.
func TestResumeRefusesAnotherStore(t *testing.T) {
	ctx := context.Background()
	dir, aside := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "aside")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	first, err := db.Open(ctx, dir, db.Options{MinFree: -1})
	must(err)
	must(first.Suspend(ctx))
	must(os.Rename(dir, aside))
	other, err := db.Open(ctx, dir, db.Options{MinFree: -1})
	must(err)
	must(other.Close())
	if err := first.Resume(ctx); err == nil {
		t.Fatal("another store was taken for the one that was suspended")
	}
	must(os.RemoveAll(dir))
	must(os.Rename(aside, dir))
	must(first.Resume(ctx))
	must(first.Close())
}
