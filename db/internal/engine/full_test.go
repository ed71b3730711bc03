package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A disk that is full, though it says that there is room: puts and refs evict and try again, what they need themselves stays, and only
// where nothing may go they fail.
func TestPutsAndRefsEvictOnAFullDisk(t *testing.T) {
	o := storetest.Options()
	o.HighWater, o.LowWater = 1, 1
	dir := t.TempDir()
	quota := int64(24 << 20) // nobody is told what is left of it
	disk := storetest.Failing(func(c storetest.Call) error {
		if c.Kind == "allocate" {
			if used, _, _ := storetest.Occupied(t, dir); used+c.N > quota {
				return vfs.ErrNoSpace
			}
		}
		return nil
	})
	s := storetest.OpenOn(t, disk, dir, o)
	m := storetest.Model(t, s, bulky())
	for i := range 200 {
		p := bulkyPrompt(i, 10)
		if _, err := putBlank(m, p); err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
		if n, why, err := m.Probe(t.Context(), p, db.MatchOptions{}); n != 640 || err != nil {
			t.Fatalf("put %d: %d tokens are there: %v, %v", i, n, why, err)
		}
	}
	if storetest.Stats(t, s).Evicted == 0 {
		t.Fatal("nothing was evicted: this test shows nothing")
	}
	quota = 0
	if err := m.SetRef(t.Context(), "pin", bulkyPrompt(199, 10), db.RefOptions{Pinned: true, Meta: make([]byte, db.MaxRefMeta)}); err != nil && !errors.Is(err, db.ErrNoSpace) {
		t.Fatal(err)
	}
	var refused error
	for i := 1000; i < 1200 && refused == nil; i++ { // what is reserved already is there to be used
		p := bulkyPrompt(i, 10)
		_, refused = putBlank(m, p)
	}
	if !errors.Is(refused, db.ErrNoSpace) {
		t.Fatalf("where nothing can be had: %v", refused)
	}
	p := bulkyPrompt(2000, 10)
	quota = 24 << 20
	if _, err := putBlank(m, p); err != nil {
		t.Fatalf("with room again: %v", err)
	}
}

// What was pinned for a time, and is not any more, makes room for a put, whether the worker has come by since or not.
func TestPutsEvictWhatIsNoLongerPinned(t *testing.T) {
	o := storetest.Options()
	o.MaxBlocks, o.HighWater = 40, 1
	_, m := storetest.Fresh(t, o, bulky())
	pin := func(i int, ttl time.Duration) {
		storetest.OK(t, m.SetRef(t.Context(), fmt.Sprint(i), bulkyPrompt(i, 10), db.RefOptions{Pinned: true, TTL: ttl}))
	}
	put := func(i int) error {
		_, err := putBlank(m, bulkyPrompt(i, 10))
		return err
	}
	n := 0
	for ; put(n) == nil; n++ {
		pin(n, time.Hour)
	}
	if err := put(n); n != 4 || !errors.Is(err, db.ErrNoSpace) {
		t.Fatalf("after %d pinned prompts: %v", n, err)
	}
	for i := range n {
		pin(i, time.Millisecond)
	}
	time.Sleep(5 * time.Millisecond)
	storetest.OK(t, put(n))
}

// When what is reserved in the log's file is used up on a full disk, the worker comes to a checkpoint, which goes on in the
// spare, though it cannot log the removals that are due before.
func TestWorkerMakesRoomInTheLog(t *testing.T) {
	dir := t.TempDir()
	o := storetest.Options()
	var full atomic.Bool
	disk := storetest.Full(&full)
	o.Budget = 8 << 20 // a step is 128 KiB
	s := storetest.OpenOn(t, disk, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 16)} // its refs are short
	storetest.Put(t, m, p)
	for i := range 3000 { // so that few removals use up what is reserved
		storetest.OK(t, m.SetRef(t.Context(), fmt.Sprintf("%020d", i), p, db.RefOptions{}))
	}
	storetest.OK(t, s.Checkpoint(t.Context()))
	storetest.OK(t, m.SetRef(t.Context(), "expires", p, db.RefOptions{TTL: time.Millisecond}))
	time.Sleep(5 * time.Millisecond)
	full.Store(true)
	var err error
	i := 0
	for ; i < 3000 && err == nil; i++ {
		err = s.DeleteRef(t.Context(), fmt.Sprintf("%020d", i))
	}
	for err == nil { // small ones, too
		err = s.DeleteRef(t.Context(), "expires")
	}
	if !errors.Is(err, db.ErrNoSpace) {
		t.Fatalf("the log is not used up after %d refs: %v", i, err)
	}
	for range 3 { // the first turn says what it could not do
		err = storetest.Engine(s).Inside().Turn(t.Context(), true)
	}
	if err != nil {
		t.Errorf("the worker: %v", err)
	}
	if err := s.DeleteRef(t.Context(), fmt.Sprintf("%020d", i)); err != nil {
		t.Errorf("after the worker's turn: %v", err)
	}
	full.Store(false)
}

// A store that was killed on a full disk deletes and evicts there in the place of its Bloom filter, where nothing is left of the space that
// was reserved for the log: nobody has to make room first. What was deleted stays deleted, and the rest is there, after further kills.
func TestKilledOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	o := storetest.Options()
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	prompts := make([]kv.Prompt, 8)
	for i := range prompts {
		prompts[i] = kv.Prompt{Tokens: crashtest.Tokens(i+1, 64)}
		storetest.Put(t, m, prompts[i])
		if i == 4 {
			storetest.Eventually(t, "the Bloom filter is built", func() bool { return storetest.Engine(s).Filter.Current().Load() != nil })
			storetest.OK(t, s.Checkpoint(t.Context()))
		}
	}
	dir = storetest.Copy(t, dir)
	storetest.OK(t, os.Remove(filepath.Join(dir, storetest.LogDir, "next.wal.tmp")))
	cutReserved(t, dir)
	var full atomic.Bool
	full.Store(true)
	disk := storetest.Full(&full)
	for i := range 3 {
		s := storetest.OpenOn(t, disk, dir, o)
		m := storetest.Model(t, s, crashtest.Plain())
		if _, err := m.Delete(t.Context(), kv.Prompt{Tokens: prompts[i].Tokens[:1]}); err != nil {
			t.Fatalf("kill %d: %v", i, err)
		}
		if n, err := storetest.Engine(s).Inside().EvictBlocks(1); n == 0 || err != nil {
			t.Fatalf("kill %d: %d blocks evicted, %v", i, n, err)
		}
		killed := storetest.Copy(t, dir)
		storetest.Crash(s)
		dir = killed
	}
	full.Store(false)
	s = storetest.OpenOn(t, disk, dir, o)
	m = storetest.Model(t, s, crashtest.Plain())
	for i, p := range prompts {
		n, why := storetest.Restore(t, m, p)
		if i < 3 && n > 0 {
			t.Errorf("prompt %d was deleted: %d tokens are back, %v", i, n, why)
		}
	}
	storetest.Expect(t, m, prompts[len(prompts)-1], 64)
	storetest.Put(t, m, prompts[0])
	storetest.OK(t, s.Checkpoint(t.Context()))
	storetest.Sound(t, s)
}

// cutReserved cuts what is reserved behind the end of the log.
func cutReserved(t *testing.T, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, storetest.LogDir, "*.wal"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		b := storetest.Must(os.ReadFile(name))(t)
		n := len(bytes.TrimRight(b, "\x00"))
		storetest.OK(t, os.Truncate(name, int64(n+7)/8*8))
	}
}

// A full disk without room for a barrier says both: that there is none, and why.
func TestNoBarrierOnAFullDisk(t *testing.T) {
	var full atomic.Bool
	o := storetest.Options()
	disk := storetest.Full(&full)
	s := storetest.OpenOn(t, disk, t.TempDir(), o)
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	storetest.OK(t, s.Sync(t.Context()))
	full.Store(true)
	for err := error(nil); err == nil; {
		_, err = storetest.Engine(s).Ledger.LogBarrier(0)
	}
	if err := storetest.Engine(s).Ledger.Barrier(storetest.Engine(s).Ledger.WAL.LastLSN()); !errors.Is(err, db.ErrNoBarrier) || !errors.Is(err, db.ErrNoSpace) {
		t.Errorf("a barrier without room: %v", err)
	}
	full.Store(false)
	if err := s.Sync(t.Context()); err != nil {
		t.Error(err)
	}
}

// A record's pages may have been punched by a process that was killed before it said so. Destroying it once more needs a page
// on a full disk, and must work nevertheless: deletions and evictions make room there.
func TestDestroyAgainOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	for i := range 3 {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i, 64)})
	}
	storetest.Must(m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(0, 64)[:1]}))(t)
	storetest.Crash(s)
	var full atomic.Bool
	disk := storetest.Failing(func(c storetest.Call) error { // punching needs no page
		if full.Load() && c.Kind == "write" && c.InSegments() {
			return db.ErrNoSpace
		}
		return nil
	})
	s = storetest.OpenOn(t, disk, dir, storetest.Options())
	m = storetest.Model(t, s, crashtest.Plain())
	full.Store(true)
	if _, err := m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(1, 64)[:1]}); err != nil {
		t.Errorf("delete on a full disk: %v", err)
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Errorf("sync on a full disk: %v", err)
	}
	full.Store(false)
	storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, 0)
	storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 64)}, 64)
}
