package recovery_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/storetest"
)

// damagedAtClose is a store into which a process put that was then killed. The next one opened it, and put nothing; its index is
// damaged where only a checkpoint will look.
func damagedAtClose(t *testing.T) *crashRun {
	w := crashCase(t, crashMode{})
	w.steps(t, crashOp{kind: "put", chat: 0, n: 91}, crashOp{kind: "checkpoint"})
	w.steps(t, putAll()...)
	image := w.dies(t)
	next := nextRun(t, image, w.k, w.j)
	next.steps(t, crashOp{kind: "open"})
	x := storetest.Match(t, next.model(0), crashChats()[0].p)
	x.Close()
	f := storetest.Must(os.OpenFile(filepath.Join(image.Dir(), storetest.IndexFile), os.O_RDWR, 0))(t)
	defer f.Close()
	info := storetest.Must(f.Stat())(t)
	tables := 2 * int64(os.Getpagesize()) // behind the meta pages
	b := make([]byte, info.Size()-tables)
	storetest.Must(f.ReadAt(b, tables))(t)
	for i := range b {
		b[i] ^= 0x55
	}
	storetest.Must(f.WriteAt(b, tables))(t)
	return next
}

// A Close or a Suspend that meets a damaged index, and says that all is well, has made durable what an earlier process left: the next open
// rebuilds the index from that.
func TestEndMeetsADamagedIndex(t *testing.T) {
	for _, end := range []string{"close", "suspend"} {
		w := damagedAtClose(t)
		w.ends(t, end)
		if _, err := os.Stat(filepath.Join(w.d.Dir(), storetest.IndexFile)); err == nil {
			t.Errorf("%s: the damaged index is still there: no checkpoint met it", end)
		}
		w.cuts(t, 8)
	}
}

// The index that is built then stays.
func TestRebuiltIndexIsNotDroppedAgain(t *testing.T) {
	w := damagedAtClose(t)
	w.steps(t, crashOp{kind: "close"}, crashOp{kind: "open"}, crashOp{kind: "close"})
	if _, err := os.Stat(filepath.Join(w.d.Dir(), storetest.IndexFile)); err != nil {
		t.Error(err)
	}
}

// If that cannot be made durable, both say so.
func TestDamagedIndexAndAFailedSync(t *testing.T) {
	for what, end := range map[string]func(s *db.Store) error{
		"close": (*db.Store).Close, "suspend": func(s *db.Store) error { return s.Suspend(t.Context()) },
	} {
		w := damagedAtClose(t)
		w.d.Before(failSyncs(storetest.LogDir))
		if err := end(w.s); err == nil {
			t.Errorf("%s: an fsync had failed, and it says nothing", what)
		}
		w.d.Before(nil)
	}
}
