package db

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

const firstSegment = segmentsDir + "/0000000000000001.seg"

// loseHeader zeroes the first page of a store's first segment.
func loseHeader(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, firstSegment), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 4096), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// diesBeforeFrame puts n tokens of the first chat, and kills the process between records and frame: nothing names the records in
// the disk that it returns.
func (w *crashRun) diesBeforeFrame(t *testing.T, n int) *crashfs.Disk {
	t.Helper()
	w.d.Before(func(op crashfs.Op) error {
		if op.Kind == "write" && strings.HasPrefix(op.Name, walDir) {
			return errDisk
		}
		return nil
	})
	if err := w.do(crashOp{kind: "put", chat: 0, n: n}); err == nil {
		t.Fatal("a put without a log succeeded")
	}
	return w.dies(t)
}

// tear takes the header of the first segment from there on, and a part of the head of its last record.
func tear(image *crashfs.Disk, from int64) error {
	f, err := image.Open(filepath.Join(image.Dir(), firstSegment), false)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := vfs.ReadAll(image, f.Name(), 1<<20)
	if err != nil {
		return err
	}
	last := strings.LastIndex(string(b), "DORM.REC")
	for _, zero := range [][2]int64{{from, 4096}, {int64(last) + 256, int64(last) + 512}} {
		if _, err := f.WriteAt(make([]byte, zero[1]-zero[0]), zero[0]); err != nil {
			return err
		}
	}
	return f.Sync()
}
