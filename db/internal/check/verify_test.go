package check_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/check"
	"github.com/dormousekv/dormouse/db/internal/tally"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

func TestMain(m *testing.M) { memdir.Main(m) }

func TestVerifyHealthy(t *testing.T) {
	dir := storetest.Small(t)
	r := storetest.Must(admin.Verify(t.Context(), dir, admin.VerifyOptions{}))(t)
	for _, d := range r.Damage {
		t.Errorf("healthy store: %v", d)
	}
	for _, n := range r.Notes {
		t.Errorf("healthy store: %s", n)
	}
	if r.Records != 26 {
		t.Errorf("%+v", r)
	}
}

// A segment that is gone is one damage, which says how much lay in it, whoever knows that: the index, or the log without it.
func TestVerifyNamesAMissingSegmentOnce(t *testing.T) {
	for _, lost := range []string{"", storetest.IndexFile} {
		s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 32)})
		w := storetest.Model(t, s, crashtest.Windowed(40))
		storetest.Put(t, w, kv.Prompt{Tokens: crashtest.Tokens(1, 100)})
		storetest.Put(t, w, kv.Prompt{Tokens: crashtest.Tokens(2, 16)})
		storetest.OK(t, s.Sync(t.Context()))
		dir := s.Dir()
		if lost != "" { // what a store looks like whose process was killed
			dir = storetest.Copy(t, dir)
			storetest.Remove(t, dir, lost)
		} else {
			storetest.OK(t, s.Close())
		}
		rep, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{})
		if err != nil || len(rep.Damage) > 0 || rep.Records != 2+8*2 {
			t.Fatalf("sound: %+v, %v", rep, err)
		}
		file := storetest.SegmentPath(dir, 2)
		storetest.OK(t, os.Remove(file))
		rep, err = admin.Verify(t.Context(), dir, admin.VerifyOptions{})
		if err != nil || len(rep.Damage) != 1 || rep.Records != 2 {
			t.Errorf("without %q: %d damaged places, %d records, %v: %v", lost, len(rep.Damage), rep.Records, rep.Damage, err)
			continue
		}
		d := rep.Damage[0]
		if d.File != file || !errors.Is(d, segments.ErrMissing) || !strings.HasSuffix(d.Error(), ": corrupt segment at offset 0: segment file is missing") {
			t.Errorf("without %q: %v", lost, d)
		}
	}
}

// A segment that cannot be opened keeps Verify from nothing but that segment: what is damaged in the others is named, the error
// says which one it was, and none of its records is called damaged, since nobody has seen them.
func TestVerifyGoesOnWhereASegmentCannotBeOpened(t *testing.T) {
	const first, other = "0000000000000001.seg", "0000000000000002.seg"
	var shut atomic.Bool
	o := storetest.Options()
	disk := storetest.Shut(vfs.OS, first, &shut, syscall.EACCES)
	dir := t.TempDir()
	s := storetest.OpenOn(t, disk, dir, o)
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	storetest.Put(t, storetest.Model(t, s, crashtest.Windowed(40)), kv.Prompt{Tokens: crashtest.Tokens(2, 64)})
	storetest.OK(t, s.Close())
	storetest.Write(t, storetest.SegmentPath(dir, 2), 4096+600, []byte("damage"))
	s = storetest.OpenOn(t, disk, dir, o)
	shut.Store(true)
	rep, err := admin.VerifyStore(t.Context(), s, admin.VerifyOptions{})
	shut.Store(false)
	if !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), first) || strings.Count(err.Error(), first) != 1 {
		t.Errorf("the error does not name what could not be opened, once: %v", err)
	}
	named := false
	for _, d := range rep.Damage {
		if filepath.Base(d.File) == first {
			t.Errorf("what nobody could read is called damaged: %v", d)
		}
		named = named || filepath.Base(d.File) == other
	}
	if !named {
		t.Errorf("the damage of %s is not named: %v", other, rep.Damage)
	}
}

// Files that a checkpoint is about to rename are no strange files.
func TestVerifyDuringCheckpoints(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			p := kv.Prompt{Tokens: crashtest.Tokens(i%7, 16*12)}
			_, err := m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, len(p.Tokens)), db.PutOptions{})
			if err == nil {
				_, err = s.Compact(t.Context(), db.CompactOptions{All: true})
			}
			if err == nil && i%3 == 0 {
				_, err = m.Delete(t.Context(), p.Prefix(16))
			}
			if err != nil {
				stopped <- err
				<-stop
				return
			}
		}
	}()
	for range 25 {
		report, err := admin.VerifyStore(t.Context(), s, admin.VerifyOptions{})
		if err != nil || len(report.Damage) > 0 {
			t.Error(err, report.Damage)
			break
		}
		for _, n := range report.Notes {
			if strings.Contains(n, "not a file of the store") {
				t.Errorf("noted: %s", n)
			}
		}
		if t.Failed() {
			break
		}
	}
	close(stop)
	storetest.OK(t, <-stopped)
}

// An index that was damaged and is rebuilt is no damage of the open store any more, and is looked into.
func TestVerifyAfterTheIndexWasRebuilt(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	dir := s.Dir()
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	storetest.OK(t, s.Close())
	storetest.Write(t, filepath.Join(dir, storetest.IndexFile), 0, make([]byte, 8192))
	if report, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{}); err != nil || len(report.Damage) == 0 {
		t.Fatal("a closed store's damaged index is not reported", err)
	}
	s = storetest.Open(t, dir, storetest.Options())
	storetest.Eventually(t, "the Bloom filter is built", func() bool { return storetest.Stats(t, s).BloomBytes > 0 })
	storetest.OK(t, s.Checkpoint(t.Context()))
	report, err := admin.VerifyStore(t.Context(), s, admin.VerifyOptions{})
	if err != nil || len(report.Damage) > 0 || len(report.Notes) > 0 {
		t.Error(err, report.Damage, report.Notes)
	}
}

// A dead segment that is unlinked while Verify is at work is no damage.
func TestVerifyBesideUnlinking(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	keep, gone := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, kv.Prompt{Tokens: crashtest.Tokens(2, 64)}
	for _, p := range []kv.Prompt{keep, gone} { // each in a segment of its own
		storetest.Put(t, m, p)
		storetest.OK(t, storetest.Engine(s).Segments.SealAll())
	}
	x := storetest.Match(t, m, gone)
	storetest.Must(m.Delete(t.Context(), gone))(t)
	storetest.Must(m.Delete(t.Context(), gone.Prefix(1)))(t)
	for range 2 {
		storetest.OK(t, s.Checkpoint(t.Context()))
	}
	before := len(storetest.Engine(s).Segments.Segments())
	unlink := sync.OnceFunc(func() {
		done := make(chan error) // somebody else does it
		go func() { done <- errors.Join(x.Close(), storetest.Engine(s).Checkpoints.Reclaim(t.Context())) }()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if out, err := check.Segments(t.Context(), storetest.Engine(s), func(tally.Progress) { unlink() }); err != nil || len(out.Damage) > 0 {
		t.Errorf("%v, %v", out.Damage, err)
	}
	if after := len(storetest.Engine(s).Segments.Segments()); after != before-1 {
		t.Fatalf("%d segments, %d before: this test shows nothing", after, before)
	}
}

// A Bloom filter that is built anew while Verify compares the old one with the index does not know what was deleted meanwhile.
// That is no damage.
func TestVerifyWhileTheBloomFilterIsBuiltAnew(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 16*20)}
	storetest.Put(t, m, p)
	storetest.Eventually(t, "the Bloom filter is there", func() bool { return storetest.Engine(s).Filter.Current().Load() != nil })
	storetest.OK(t, s.Checkpoint(t.Context()))
	out := storetest.Must(check.Bloom(storetest.Asked(t.Context(), func() {
		storetest.Must(m.Delete(t.Context(), p.Prefix(16)))(t)
		storetest.OK(t, storetest.Engine(s).RebuildFilter(t.Context()))
	}), storetest.Engine(s)))(t)
	if len(out.Damage) > 0 {
		t.Fatalf("%d false reports, the first: %v", len(out.Damage), out.Damage[0])
	}
}
