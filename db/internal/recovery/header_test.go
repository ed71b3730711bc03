package recovery_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// loseHeader zeroes the first page of a store's first segment.
func loseHeader(t *testing.T, dir string) {
	t.Helper()
	f := storetest.Must(os.OpenFile(filepath.Join(dir, storetest.FirstSegment), os.O_RDWR, 0))(t)
	storetest.Must(f.WriteAt(make([]byte, 4096), 0))(t)
	storetest.OK(t, f.Close())
}

// diesBeforeFrame puts n tokens of the first chat, and kills the process between records and frame: nothing names the records in
// the disk that it returns.
func (w *crashRun) diesBeforeFrame(t *testing.T, n int) *crashfs.Disk {
	t.Helper()
	w.d.Before(func(op crashfs.Op) error {
		if op.Kind == "write" && strings.HasPrefix(op.Name, storetest.LogDir) {
			return errDisk
		}
		return nil
	})
	if err := w.do(crashOp{kind: "put", chat: 0, n: n}); err == nil {
		t.Fatal("a put without a log succeeded")
	}
	return w.dies(t)
}

// tear leaves of the first segment what a power cut may, before its header is durable: so many bytes of that, and zeros.
func tear(image *crashfs.Disk, left int64) error {
	f, err := image.Open(filepath.Join(image.Dir(), storetest.FirstSegment), false)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		_, err = f.WriteAt(make([]byte, info.Size-left), left)
	}
	return errors.Join(err, f.Sync())
}

// A segment whose header a power cut tore before it was durable was never born: it goes, and what is left of it is no damage meanwhile.
func TestSegmentThatWasNeverBorn(t *testing.T) {
	for _, left := range []int64{0, 100, 300} {
		for _, without := range []string{"", storetest.IndexFile} {
			x := crashChats()[0]
			n := len(x.p.Tokens)
			w, image := headerless(t, n, left)
			if without != "" {
				storetest.OK(t, image.Remove(filepath.Join(image.Dir(), without)))
			}
			run := nextRun(t, image, w.k, newCrashJournal(w.k))
			for _, kind := range []string{"open", "sync", "checkpoint", "reopen", "put", "reopen"} {
				storetest.OK(t, run.do(crashOp{kind: kind, chat: 0, n: n}))
				t.Logf("without %q, %s", without, kind)
				storetest.Sound(t, run.s)
			}
			if got, err := x.restore(run.model(0)); err != nil || got != n {
				t.Errorf("%d bytes, without %q: %d of %d tokens, %v", left, without, got, n, err)
			}
			for _, s := range storetest.Engine(run.s).Segments.Segments() {
				if s.Err != nil {
					t.Errorf("%d bytes, without %q: %+v", left, without, s)
				}
			}
		}
	}
}

// Also where a power cut takes back that it went, after a checkpoint that left the log which knew of it: it goes once more, and what
// is left of it is no damage meanwhile.
func TestHeaderlessSegmentComesBack(t *testing.T) {
	for _, without := range []string{"", storetest.IndexFile} {
		x := crashChats()[0]
		n := len(x.p.Tokens)
		w, image := headerless(t, n, 300)
		torn := crashtest.Files(image)[storetest.FirstSegment]
		run := nextRun(t, image, w.k, newCrashJournal(w.k))
		run.steps(t, crashOp{kind: "open"}, crashOp{kind: "checkpoint"})
		back := run.dies(t)
		f, err := back.Create(filepath.Join(back.Dir(), storetest.FirstSegment))
		if err == nil {
			_, err = f.WriteAt(torn, 0)
		}
		if err == nil {
			err = errors.Join(f.Sync(), f.Close(), back.SyncDir(filepath.Join(back.Dir(), storetest.SegmentsDir)), crashtest.Reboot(back, back.Dir()))
		}
		if err == nil && without != "" {
			err = back.Remove(filepath.Join(back.Dir(), without))
		}
		storetest.OK(t, err)
		last := nextRun(t, back, w.k, newCrashJournal(w.k))
		for _, kind := range []string{"open", "put", "checkpoint", "reopen"} {
			storetest.OK(t, last.do(crashOp{kind: kind, chat: 0, n: n}))
			t.Logf("without %q, %s", without, kind)
			storetest.Sound(t, last.s)
		}
		if got, err := x.restore(last.model(0)); err != nil || got != n {
			t.Errorf("without %q: %d of %d tokens, %v", without, got, n, err)
		}
		if storetest.Engine(last.s).Segments.Has(1) {
			t.Errorf("without %q: it is still there", without)
		}
	}
}

// headerless is a disk after a power cut that left so many bytes of the header of a segment, in which nothing lives.
func headerless(t *testing.T, n int, left int64) (w *crashRun, image *crashfs.Disk) {
	t.Helper()
	w = crashCase(t, crashMode{})
	w.steps(t, crashOp{kind: "put", chat: 0, n: n - 20})
	storetest.Must(w.model(0).Delete(t.Context(), crashChats()[0].p.Prefix(1)))(t)
	image = w.diesBeforeFrame(t, n)
	err := tear(image, left)
	if err == nil {
		err = crashtest.Reboot(image, image.Dir())
	}
	storetest.OK(t, err)
	return w, image
}

// A segment that somebody cut, and of which the header is lost, is damage: the store goes on beside it.
func TestHeaderLostOfCutSegment(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Tokens(crashtest.Tokens(1, 48)...)
	for n := 16; n <= 48; n += 16 { // one after the other, so that the last block is the last record
		storetest.Put(t, m, p.Prefix(n))
	}
	end := storetest.Place(t, s, m, p, 2, 0).End()
	image := storetest.Copy(t, dir)
	name := filepath.Join(image, storetest.SegmentsDir, "0000000000000001.seg")
	loseHeader(t, image)
	storetest.OK(t, os.Truncate(name, end-8192))
	s = storetest.Open(t, image, storetest.Options())
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.OK(t, s.Sync(t.Context()))
	storetest.OK(t, s.Checkpoint(t.Context()))
	storetest.Expect(t, m, p, 32)
}
