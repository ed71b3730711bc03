package recovery_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
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
		f := storetest.Must(back.Create(filepath.Join(back.Dir(), storetest.FirstSegment)))(t)
		storetest.Must(f.WriteAt(torn, 0))(t)
		storetest.OK(t, errors.Join(f.Sync(), f.Close(), back.SyncDir(filepath.Join(back.Dir(), storetest.SegmentsDir))))
		storetest.OK(t, crashtest.Reboot(back, back.Dir()))
		if without != "" {
			storetest.OK(t, back.Remove(filepath.Join(back.Dir(), without)))
		}
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
	storetest.OK(t, tear(image, left))
	storetest.OK(t, crashtest.Reboot(image, image.Dir()))
	return w, image
}

// A segment that somebody cut, and of which the header is lost, is damage: the store goes on beside it.
func TestHeaderLostOfCutSegment(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	dir := s.Dir()
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

// killed makes a store whose process died right after a put, and returns its directory and the place of the last record.
func killed(t *testing.T, p kv.Prompt) (dir string, last db.Block) {
	t.Helper()
	dir = t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
	for b, err := range s.Blocks(t.Context()) {
		storetest.OK(t, err)
		if b.Offset > last.Offset {
			last = b
		}
	}
	storetest.OK(t, s.Sync(t.Context()))
	storetest.Crash(s)
	return dir, last
}

func segmentFile(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, storetest.SegmentsDir, "*.seg"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	return names[0]
}

// What the index names and cannot be read just now is not destroyed when a killed process's segment is sealed: the
// disk may read it again tomorrow.
func TestSealingSparesUnreadableRecords(t *testing.T) {
	const tokens = 640
	p := kv.Prompt{Tokens: crashtest.Tokens(1, tokens)}
	for _, which := range []string{"first", "last"} { // with records behind it, a scan knows where what it cannot read ends
		t.Run(which, func(t *testing.T) {
			dir, last := killed(t, p)
			at := last.Offset
			if which == "first" {
				at = 4096
			}
			storetest.Flip(t, segmentFile(t, dir), at, 3, func() {
				rep, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{})
				if err != nil || len(rep.Damage) == 0 {
					t.Errorf("verify of a killed store with a flipped bit in a record: %+v, %v", rep, err)
				}
				s := storetest.Open(t, dir, storetest.Options())
				if n, _ := storetest.Restore(t, storetest.Model(t, s, crashtest.Plain()), p); n >= tokens {
					t.Errorf("%d tokens are restored, though a record has a flipped bit", n)
				}
				storetest.OK(t, s.Checkpoint(t.Context()))
				storetest.OK(t, s.Close())
			})
			storetest.Remove(t, dir, storetest.IndexFile)
			s := storetest.Open(t, dir, storetest.Options())
			storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, tokens)
		})
	}
}

// A checkpoint that seals a killed process's segment does not disturb a Verify that walks over the segment.
func TestVerifyBesideSealing(t *testing.T) {
	for range 8 {
		dir, last := killed(t, kv.Prompt{Tokens: crashtest.Tokens(1, 640)})
		storetest.Write(t, segmentFile(t, dir), last.Offset+(last.Bytes+4095)/4096*4096, []byte("a record that the kill tore"))
		s := storetest.Open(t, dir, storetest.Options())
		var wait sync.WaitGroup
		wait.Go(func() {
			if err := s.Checkpoint(t.Context()); err != nil {
				t.Error(err)
			}
		})
		storetest.Sound(t, s)
		wait.Wait()
		storetest.OK(t, s.Close())
	}
}

// A store that is opened and only read writes nothing: no log file, no checkpoint. What it is used for later finds the log.
func TestOpenWritesNothing(t *testing.T) {
	dir := t.TempDir()
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	s := storetest.Open(t, dir, storetest.Options())
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
	storetest.Eventually(t, "the Bloom filter is built", func() bool { return storetest.Stats(t, s).BloomBytes > 0 })
	storetest.OK(t, s.Close())
	before := storetest.Tree(t, dir)
	s = storetest.Open(t, dir, storetest.Options())
	if n, _, err := storetest.Model(t, s, crashtest.Plain()).Probe(t.Context(), p, db.MatchOptions{}); err != nil || n != 64 {
		t.Fatal(n, err)
	}
	storetest.Must(s.Stats())(t)
	storetest.OK(t, s.Close())
	storetest.SameTree(t, before, storetest.Tree(t, dir), "opened, probed and closed")

	s = storetest.Open(t, dir, storetest.Options())
	more := kv.Prompt{Tokens: crashtest.Tokens(2, 64)}
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), more)
	storetest.Crash(s)
	s = storetest.Open(t, dir, storetest.Options())
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 64)
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), more, 64)
}

// A disk that cannot read the end of a segment.
type badEndFS struct {
	vfs.FS
	from *atomic.Int64 // 0: it can
}

func (f badEndFS) Open(name string, readOnly bool) (vfs.File, error) {
	file, err := f.FS.Open(name, readOnly)
	if err != nil || !strings.HasSuffix(name, ".seg") {
		return file, err
	}
	return badEndFile{file, f}, nil
}

type badEndFile struct {
	vfs.File
	fs badEndFS
}

// Map maps a copy that ends where reading is to fail: a fault is how a map says so.
func (f badEndFile) Map(size int64) (vfs.Mapping, error) {
	from := f.fs.from.Load()
	if from == 0 {
		return f.File.Map(size)
	}
	b := make([]byte, from)
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, err
	}
	name := f.Name() + ".cut"
	if err := os.WriteFile(name, b, 0o600); err != nil {
		return nil, err
	}
	defer os.Remove(name)
	short, err := f.fs.FS.Open(name, true)
	if err != nil {
		return nil, err
	}
	defer short.Close()
	return short.Map(size)
}

// A record that no frame names, and that could not be read when the store was opened, keeps nothing from being sealed when it
// can be read again.
func TestSweepThatCouldNotReadAll(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	dir := s.Dir()
	p, never := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, kv.Prompt{Tokens: crashtest.Tokens(2, 64)}
	storetest.Put(t, m, p)
	var end int64
	for _, e := range storetest.Engine(s).Checkpoints.OpenEnds() {
		end = e
	}
	used, _ := storetest.Engine(s).Ledger.WAL.Room()
	storetest.Put(t, m, never)
	now, ahead := storetest.Engine(s).Ledger.WAL.Room()
	log := filepath.Join(dir, storetest.LogDir, "0000000000000001.wal")
	b := storetest.Must(os.ReadFile(log))(t)
	frames := int64(len(b)) - ahead
	clear(b[frames-(now-used) : frames]) // killed before the last put was logged
	image := storetest.Copy(t, dir)
	storetest.OK(t, os.WriteFile(filepath.Join(image, storetest.LogDir, filepath.Base(log)), b, 0o600))

	o := storetest.Options()
	var from atomic.Int64
	from.Store(end)
	disk := badEndFS{vfs.OS, &from}
	s = storetest.OpenOn(t, disk, image, o)
	m = storetest.Model(t, s, crashtest.Plain())
	from.Store(0)
	storetest.Engine(s).Segments.Trim()
	for range 2 {
		if err := s.Checkpoint(t.Context()); err != nil {
			t.Error(err)
		}
	}
	storetest.Expect(t, m, p, 64)
	storetest.Expect(t, m, never, 0)
	storetest.Sound(t, s)
	storetest.OK(t, s.Close())
	storetest.Remove(t, image, storetest.IndexFile)
	s = storetest.Open(t, image, storetest.Options())
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.Expect(t, m, p, 64)
	storetest.Expect(t, m, never, 0)
}
