package db

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// What a power cut left of a record that it tore at the end of a segment is in no file after a deletion and a Sync, either.
func TestTornRecordIsWiped(t *testing.T) {
	w := crashCase(t, crashMode{})
	n := len(crashChats()[0].p.Tokens)
	w.steps(t, crashOp{kind: "put", chat: 0, n: n - 20})
	w.d.Before(func(op crashfs.Op) error {
		if op.Kind == "write" && strings.HasPrefix(op.Name, walDir) {
			return errDisk
		}
		return nil
	})
	if err := w.do(crashOp{kind: "put", chat: 0, n: n}); err == nil {
		t.Fatal("a put without a log succeeded")
	}
	w.d.Crash()
	w.kill()
	image, err := w.d.Kill(newCrashDirs(t).next())
	if err != nil {
		t.Fatal(err)
	}
	f, err := image.Open(filepath.Join(image.Dir(), segmentsDir, "0000000000000001.seg"), false)
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
	x := &crashRun{d: image, k: w.k, j: newCrashJournal(w.k)}
	t.Cleanup(x.kill)
	x.steps(t, crashOp{kind: "open"}, crashOp{kind: "delete", chat: 0, n: crashSystem + 1}, crashOp{kind: "sync"})
	if found := x.j.grep(image); len(found) > 0 {
		t.Errorf("deleted bytes are in %d places: %v", len(found), found[0])
	}
}
