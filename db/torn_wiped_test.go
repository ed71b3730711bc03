package db

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// What a power cut left of a record that it tore at the end of a segment is in no file after a deletion and a Sync, either.
func TestTornRecordIsWiped(t *testing.T) {
	w := crashCase(t, crashMode{})
	n := len(crashChats()[0].p.Tokens)
	w.steps(t, crashOp{kind: "put", chat: 0, n: n - 20})
	image := w.diesBeforeFrame(t, n)
	f, err := image.Open(filepath.Join(image.Dir(), firstSegment), false)
	if err != nil {
		t.Fatal(err)
	}
	b, err := vfs.ReadAll(image, f.Name(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 100), int64(strings.LastIndex(string(b), "DORM.REC"))+100); err != nil {
		t.Fatal(err)
	}
	f.Close()
	x := nextRun(t, image, w.k, newCrashJournal(w.k))
	x.steps(t, crashOp{kind: "open"}, crashOp{kind: "delete", chat: 0, n: crashSystem + 1}, crashOp{kind: "sync"})
	if found := x.j.grep(image); len(found) > 0 {
		t.Errorf("deleted bytes are in %d places: %v", len(found), found[0])
	}
}
