package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A checkpoint that fails again and again takes no more room each time, and none of what is to be kept; the first that
// succeeds writes everything.
func TestCheckpointThatKeepsFailing(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	var first int64
	for i := range 40 {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2+i, 32)})
		if err := s.Checkpoint(stopped); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if n := storetest.Engine(s).Ledger.WAL.Bytes(); i == 1 {
			first = n
		} else if i > 1 && n > first+1<<20 {
			t.Fatalf("after %d checkpoints that failed the log takes %d bytes, after 2 it took %d", i+1, n, first)
		}
	}
	storetest.Must(m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(2, 16)}))(t)
	check := func(s *db.Store) {
		t.Helper()
		m := storetest.Model(t, s, crashtest.Plain())
		storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, 64)
		storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 32)}, 0)
		for i := 1; i < 40; i++ {
			storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(2+i, 32)}, 32)
		}
	}
	image := storetest.Copy(t, dir)
	check(storetest.Open(t, image, storetest.Options()))
	storetest.OK(t, s.Checkpoint(t.Context()))
	if files, err := os.ReadDir(filepath.Join(dir, storetest.LogDir)); err != nil || len(files) > 2 {
		t.Fatalf("%d files of the log behind a checkpoint (%v)", len(files), err)
	}
	check(s)
	storetest.OK(t, s.Close())
	soundFolder(t, dir)
	check(storetest.Open(t, dir, storetest.Options()))
}

// A store that was killed when more waited to be destroyed than the head of a log file holds can be written to again.
func TestKilledWithMoreToDestroyThanALogHeadHolds(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	kept, gone := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, kv.Prompt{Tokens: crashtest.Tokens(2, 16*200)}
	storetest.Put(t, m, kept)
	storetest.Put(t, m, gone)
	reader := storetest.Match(t, m, gone)
	defer reader.Close()
	storetest.Must(m.Delete(t.Context(), gone.Prefix(16)))(t)
	image := storetest.Copy(t, dir)
	const maxHead = 4000
	defer engine.SetMaxHead(maxHead)()
	for range 2 {
		s := storetest.Open(t, image, storetest.Options())
		m := storetest.Model(t, s, crashtest.Plain())
		if n := len(storetest.Engine(s).Checkpoints.Inside().Head(nil)); n > maxHead {
			t.Fatalf("the head of the log takes %d bytes, at most %d", n, maxHead)
		}
		storetest.Expect(t, m, kept, 64)
		storetest.Expect(t, m, gone, 0)
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(3, 64)})
		storetest.Crash(s)
	}
}

// Of two records of one key the live one may be the older: a rebuild must not prefer the one that waits to be destroyed.
func TestRebuildKeepsTheLiveCopy(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	// Another put plans the first block, too, and comes second.
	w := halfPut(t, s, m, &p, 0)
	storetest.OK(t, w.Block(t.Context(), 0))
	storetest.Put(t, m, p)
	x := storetest.Match(t, m, p) // keeps the loser's bytes
	defer x.Close()
	storetest.OK(t, w.Publish(t.Context()))
	if w.Result.Records != 1 {
		t.Fatalf("%d records were written twice: this test shows nothing", w.Result.Records)
	}
	for range 2 {
		storetest.OK(t, s.Checkpoint(t.Context()))
	}
	storetest.Crash(s, x)
	storetest.OK(t, os.Remove(filepath.Join(dir, storetest.IndexFile)))
	s = storetest.Open(t, dir, storetest.Options())
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 64)
}

// The Bloom filter's file knows what the index of the same checkpoint has, although the filter was built anew while the checkpoint
// was written and does not know what was evicted meanwhile: a power cut can take the frame that says so.
func TestFilterBuiltDuringACheckpoint(t *testing.T) {
	dirs := crashtest.NewDirs(t)
	d := crashtest.NewDisk(dirs.Next())
	o := storetest.Options()
	s := storetest.OpenOn(t, d, d.Dir(), o)
	m, e := storetest.Model(t, s, crashtest.Plain()), storetest.Engine(s)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 32)}
	storetest.Put(t, m, p)
	storetest.OK(t, s.Checkpoint(t.Context()))
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 32)})

	e.Checkpoints.Inside().Mu().Lock()
	finish := storetest.Must(e.Checkpoints.Inside().Freeze())(t)
	for range 2 {
		if n, err := e.Inside().EvictBlocks(1); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	}
	storetest.OK(t, e.RebuildFilter(t.Context()))
	err := finish(t.Context())
	e.Checkpoints.Inside().Mu().Unlock()
	storetest.OK(t, err)

	back := 0
	for seed := range uint64(12) {
		image := storetest.Must(d.PowerCut(rand.New(rand.NewPCG(seed, 1)), dirs.Next()))(t)
		storetest.OK(t, crashtest.Reboot(image, image.Dir()))
		s := storetest.OpenOn(t, image, image.Dir(), o)
		storetest.Stats(t, s) // waits for the filter
		if storetest.Engine(s).Ledger.Counts().Blocks == 4 {
			back++
		}
		var v index.View
		filter := storetest.Engine(s).Search.Look(&v)
		storetest.OK(t, v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
			if filter != nil && !filter.MayContain(x.Key) {
				t.Errorf("image %d: the filter denies block %s, which is stored", seed, x.Key)
			}
			return true
		}))
		v.Release()
	}
	if back == 0 {
		t.Fatal("the evictions are durable in every image")
	}
}

// A crash between the index's commit and the Bloom filter's file leaves a filter that is older than the index. It must not
// deny what the index has.
func TestBloomFileOlderThanIndex(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	storetest.OK(t, s.Checkpoint(t.Context()))
	p := kv.Prompt{Tokens: crashtest.Tokens(2, 64)}
	storetest.Put(t, m, p)
	e := storetest.Engine(s)
	storetest.OK(t, e.Checkpoints.Inside().HalfCheckpoint(t.Context()))
	storetest.Crash(s)
	s = storetest.Open(t, dir, storetest.Options())
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 64)
}

// What is logged while a checkpoint is written is in none, and counts for the next one.
func TestGrowthDuringACheckpoint(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 32)}
	storetest.Put(t, m, p)
	storetest.OK(t, s.Checkpoint(storetest.Asked(t.Context(), func() {
		storetest.Meanwhile(func() {
			storetest.OK(t, m.SetRef(t.Context(), "late", p, db.RefOptions{Meta: make([]byte, db.MaxRefMeta)}))
			storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 32)})
		})
	})))
	if n, all := storetest.Engine(s).Ledger.StateGrowth.Load(), storetest.Engine(s).Ledger.Growth.Load(); n < db.MaxRefMeta || all < n+1<<10 {
		t.Errorf("%d bytes of refs, %d in all are said to be behind the checkpoint", n, all)
	}
	storetest.OK(t, s.Checkpoint(t.Context()))
	if n, all := storetest.Engine(s).Ledger.StateGrowth.Load(), storetest.Engine(s).Ledger.Growth.Load(); n != 0 || all != 0 {
		t.Errorf("%d bytes of refs, %d in all are said to be behind the next one", n, all)
	}
}

// What an older head of the log gave up and the newest one does not is alive: a power cut had taken what stood in its place,
// and a recovery, which a crash ended before it could remove the older head, has kept it.
func TestNewestHeadDecidesWhatIsDead(t *testing.T) {
	dir := t.TempDir()
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	s := storetest.Open(t, dir, storetest.Options())
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
	storetest.OK(t, s.Checkpoint(t.Context()))
	e := storetest.Engine(s)
	v := e.View()
	storetest.OK(t, v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		e.Catalog.BuryAt(x.Loc)
		return true
	}))
	v.Release()
	for range 2 {
		head := e.Checkpoints.Inside().Head(nil)
		if _, _, err := e.Ledger.WAL.Rotate(func(uint64) []byte { return head }); err != nil {
			t.Fatal(err)
		}
		e.Catalog.Destroyed(e.Catalog.Tombstones())
	}
	storetest.Crash(s)
	storetest.OK(t, os.Remove(filepath.Join(dir, storetest.IndexFile)))
	s = storetest.Open(t, dir, storetest.Options())
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 64)
}

// Files that stay open are made longer by reserving blocks, never by a write: for that, XFS gives a file as much again as it has, 64 KiB or
// more, until it is closed. No budget has room for that.
func TestNoWriteMakesAFileLonger(t *testing.T) {
	o := storetest.Options()
	o.SegmentBytes = 64 << 10
	var writes atomic.Int64
	disk := storetest.Failing(func(c storetest.Call) error {
		if c.Kind != "write" || strings.HasSuffix(c.Name, ".tmp") || strings.HasSuffix(c.Name, folder.LockName) {
			return nil
		}
		info, err := vfs.OS.Stat(c.Name)
		if err == nil && c.Off+c.N > info.Size {
			err = fmt.Errorf("a write of %d bytes at %d, into a file of %d", c.N, c.Off, info.Size)
			t.Errorf("%s: %v", c.Name, err)
		}
		if c.InSegments() || c.InLog() {
			writes.Add(1)
		}
		return err
	})
	s := storetest.OpenOn(t, disk, t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	for i := range 100 {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i, 32+i)})
		if i%20 == 0 {
			storetest.OK(t, s.Checkpoint(t.Context()))
		}
	}
	storetest.OK(t, s.Close())
	if n := writes.Load(); n < 300 {
		t.Errorf("%d writes: this test shows little", n)
	}
}

// gatedRemove is a file system on which the removal of a log file meets a listing of the log's folder, if there may be one.
type gatedRemove struct {
	vfs.FS
	on               *atomic.Bool
	removing, listed chan struct{}
	removed          chan struct{}
}

func (f gatedRemove) Remove(name string) error {
	if filepath.Ext(name) != ".wal" || !f.on.CompareAndSwap(true, false) {
		return f.FS.Remove(name)
	}
	close(f.removing)
	select {
	case <-f.listed:
	case <-time.After(200 * time.Millisecond): // nobody lists files that are being removed
	}
	defer close(f.removed)
	return f.FS.Remove(name)
}

func (f gatedRemove) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	select {
	case <-f.removing:
		select {
		case <-f.listed:
		default:
			close(f.listed)
			<-f.removed
		}
	default:
	}
	return names, err
}

// The log can be listed while a checkpoint removes its files.
func TestLogBesideCheckpoint(t *testing.T) {
	f := gatedRemove{vfs.OS, new(atomic.Bool), make(chan struct{}), make(chan struct{}), make(chan struct{})}
	s := storetest.OpenOn(t, f, t.TempDir(), storetest.Options())
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Prompt{Tokens: crashtest.Tokens(1, 16)})
	f.on.Store(true)
	var beside sync.WaitGroup
	beside.Go(func() {
		if err := s.Checkpoint(t.Context()); err != nil {
			t.Error(err)
		}
	})
	<-f.removing
	if _, err := db.Collect(admin.Log(t.Context(), s)); err != nil {
		t.Error(err)
	}
	beside.Wait()
}
