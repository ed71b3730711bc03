package recovery_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

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
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	dir, last := killed(t, p)
	storetest.Flip(t, segmentFile(t, dir), last.Offset, 3, func() {
		rep, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{})
		if err != nil || len(rep.Damage) == 0 {
			t.Errorf("verify of a killed store with a flipped bit in its last record: %+v, %v", rep, err)
		}
		s := storetest.Open(t, dir, storetest.Options())
		if n, _ := storetest.Restore(t, storetest.Model(t, s, crashtest.Plain()), p); n >= 64 {
			t.Errorf("%d tokens are restored from a record with a flipped bit", n)
		}
		storetest.OK(t, s.Checkpoint(t.Context()))
		storetest.OK(t, s.Close())
	})
	storetest.Remove(t, dir, storetest.IndexFile)
	s := storetest.Open(t, dir, storetest.Options())
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 64)
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
