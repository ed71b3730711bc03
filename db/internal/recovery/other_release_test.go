package recovery_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// The log is lost, and the copy of its head in index.db is another release's: ErrVersion, "Nothing is changed" (db/errors.go).
func TestHeadOfAnotherReleaseChangesNothing(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	storetest.Eventually(t, "filter", func() bool { return storetest.Stats(t, s).BloomBytes > 0 })
	storetest.OK(t, s.Close())
	format := storetest.Must(os.ReadFile(filepath.Join(dir, "FORMAT")))(t)
	o := index.Options{Path: filepath.Join(dir, "index.db"), UUID: kv.UUID(format[40:56])}
	ix, err := index.Open(o)
	storetest.OK(t, err)
	a := ix.Applied()
	ix.Close()
	if a.LSN == 0 || len(a.Extra) == 0 {
		t.Fatal(a)
	}
	a.Extra = oplog.Encode(oplog.Snapshot{Boot: "x", FormerRefs: 77})
	os.Remove(o.Path)
	if ix, err = index.Create(o, a); err != nil {
		t.Fatal(err)
	}
	ix.Close()
	logs, _ := filepath.Glob(filepath.Join(dir, "wal", "*"))
	for _, l := range logs {
		os.Remove(l)
	}
	before := storetest.Tree(t, dir)
	_, err = storetest.TryOpen(vfs.OS, dir, storetest.Options())

	if !errors.Is(err, db.ErrVersion) {
		t.Fatalf("not ErrVersion: %v", err)
	}
	storetest.SameTree(t, before, storetest.Tree(t, dir), "Open with ErrVersion")
}
