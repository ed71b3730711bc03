package engine_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/remove"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// A frame of as many removals as there may be in one is no longer than the log takes, with all the refs that a store has.
func TestRemovalsFitAFrame(t *testing.T) {
	dead := make([]oplog.Dead, 1000)
	for i := range dead {
		dead[i] = oplog.Dead{Key: kv.Key{15: 1}, Group: 255, Loc: loc.Loc{Segment: 1 << 60, Offset: 1 << 60, Length: 1 << 60, Tier: 255}}
	}
	one := len(oplog.Encode(oplog.Remove{Deleted: true, Dead: dead})) / len(dead)
	t.Logf("%d bytes for a record: %d in a frame", one, wal.MaxPayload/one)
	frame, waiting := remove.Batches()
	if n := (waiting+frame+256)*(one+1) + db.MaxHeadBytes; n > wal.MaxPayload {
		t.Fatalf("%d bytes, at most %d", n, wal.MaxPayload)
	}
}

// What is put below a block between two frames of its deletion goes, too, wherever it lies among what is there and what has gone.
func TestDeletionOfWhatIsPutBetweenFrames(t *testing.T) {
	defer remove.SetBatches(7, 0)()
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	prefix := kv.Prompt{Tokens: crashtest.Tokens(1, 16)}
	n := 0
	put := func() {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Concat(prefix.Tokens, crashtest.Tokens(100+n, 16))})
		n++
	}
	for range 60 {
		put()
	}
	var out remove.Deleted
	e := storetest.Engine(s)
	frame := e.Remover.Steps(e.Catalog.Model(m.Fingerprint()), &prefix)
	for more := true; more; {
		more = storetest.Must(frame(&out))(t)
		for range min(4, 100-n) {
			if more {
				put()
			}
		}
	}
	if left := e.Ledger.Counts().Blocks; n < 90 || left > 0 || out.Blocks != n+1 {
		t.Errorf("%d prompts were put; %d blocks are left, and %d went", n, left, out.Blocks)
	}
}

// A deletion goes on in a long prompt where its last frame ended. What others branch off it meanwhile, above that place and below, goes too.
func TestDeletionOfALongPromptBetweenFrames(t *testing.T) {
	home := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		defer remove.SetBatches(rapid.IntRange(1, 9).Draw(r, "records a frame"), 0)()
		dir := storetest.Must(os.MkdirTemp(home, ""))(t)
		s := storetest.Open(t, dir, storetest.Options())
		defer s.Close()
		m := storetest.Model(t, s, crashtest.Plain())
		long := crashtest.Tokens(1, 16*rapid.IntRange(2, 40).Draw(r, "blocks"))
		prefix := kv.Prompt{Tokens: long[:16*rapid.IntRange(1, 2).Draw(r, "of the prefix")]}
		storetest.Put(t, m, kv.Prompt{Tokens: long})
		stays := int64(len(prefix.Tokens)/16 - 1)
		var out remove.Deleted
		e := storetest.Engine(s)
		frame := e.Remover.Steps(e.Catalog.Model(m.Fingerprint()), &prefix)
		for n, more := 0, true; more; n++ {
			more = storetest.Must(frame(&out))(t)
			if more && n < 20 && rapid.Bool().Draw(r, "a branch is put") {
				from := rapid.IntRange(len(prefix.Tokens), len(long)).Draw(r, "after")
				storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Concat(long[:from], crashtest.Tokens(100+n, 40))})
			}
		}
		if left := e.Ledger.Counts().Blocks; left != stays {
			r.Fatalf("%d blocks are left, of %d", left, stays)
		}
	})
}

// A deletion that does not fit into one frame is done in several. After each, as after a kill there, every block has its prefix;
// in the end all of it is gone, with the refs on it, and nothing else.
func TestDeletionInSeveralFrames(t *testing.T) {
	const removeBatch = 7
	defer remove.SetBatches(removeBatch, 0)()
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Windowed(24))
	other := kv.Prompt{Tokens: crashtest.Tokens(99, 64)}
	storetest.Put(t, m, other)
	var prompts []kv.Prompt
	for i := range 6 {
		p := kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(1, 64), crashtest.Tokens(2+i/2, 48), crashtest.Tokens(10+i, 40))}
		storetest.Put(t, m, p)
		storetest.OK(t, m.SetRef(t.Context(), fmt.Sprint(i), p, db.RefOptions{Pinned: true}))
		prompts = append(prompts, p)
	}
	prefix := prompts[0].Prefix(20)
	var out remove.Deleted
	frame := storetest.Engine(s).Remover.Steps(storetest.Engine(s).Catalog.Model(m.Fingerprint()), &prefix)
	for more := true; more; {
		before := out.Records
		more = storetest.Must(frame(&out))(t)
		if n := out.Records - before; n > removeBatch+1 {
			t.Fatalf("%d records in a frame", n)
		}
		image := storetest.Copy(t, dir)
		soundFolder(t, image)
		s := storetest.Open(t, image, storetest.Options())
		m := storetest.Model(t, s, crashtest.Windowed(24))
		storetest.Expect(t, m, other, 64)
		for i, p := range prompts {
			got, _ := storetest.Restore(t, m, p)
			_, err := s.Ref(fmt.Sprint(i))
			if (err == nil) != (got == len(p.Tokens)) {
				t.Fatalf("%d of %d tokens are left, and the ref: %v", got, len(p.Tokens), err)
			}
		}
		storetest.Must(m.Delete(t.Context(), prefix))(t) // once more, as whoever was killed would
		// Those of the other one are left, and the first.
		if left := storetest.Engine(s).Ledger.Counts().Blocks; left != 5 {
			t.Fatalf("%d blocks are left", left)
		}
	}
	if out.Refs != 6 {
		t.Errorf("deleted %+v", out)
	}
	for _, p := range prompts {
		storetest.Put(t, m, p)
	}
	if out, err := m.Delete(t.Context(), prefix); err != nil || out.Records < 3*removeBatch {
		t.Fatal(out, err)
	}
	storetest.OK(t, s.Sync(t.Context()))
	for _, p := range prompts {
		storetest.Expect(t, m, p, 16)
	}
	storetest.Expect(t, m, other, 64)
}

// A block with very many continuations goes with all of them, in however many frames.
func TestDeletionOfManyBranches(t *testing.T) {
	const branches = 150
	for _, batch := range []int{7, 64, 512} {
		reset := remove.SetBatches(batch, 0)
		s, m := storetest.Fresh(t, storetest.Options(), crashtest.Windowed(24))
		opening := crashtest.Tokens(1, 64)
		for i := range branches {
			storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Concat(opening, crashtest.Tokens(100+i, 20)), Scope: "a", ScopeStart: 48})
		}
		before := storetest.Engine(s).Ledger.Counts().Blocks
		out, err := s.DeleteScope(t.Context(), "a")
		if left := storetest.Engine(s).Ledger.Counts().Blocks; err != nil || out.Blocks < branches || int64(out.Blocks)+left != before || left > 3 {
			t.Errorf("%d records a frame: %d blocks of %d deleted, %d left (%v)", batch, out.Blocks, before, left, err)
		}
		storetest.OK(t, s.Close())
		reset()
	}
}

// On a full disk the room of what a large deletion has removed is what the rest of it needs in the log. What a frame that was refused would have
// removed goes with the next.
func TestLargeDeletionOnAFullDisk(t *testing.T) {
	for _, prompts := range []int{40, 1} {
		t.Run(fmt.Sprint(prompts), func(t *testing.T) { testLargeDeletionOnAFullDisk(t, prompts) })
	}
}

func testLargeDeletionOnAFullDisk(t *testing.T, prompts int) {
	defer remove.SetBatches(7, 0)()
	var armed, refused atomic.Bool
	var frames atomic.Int64
	disk := storetest.Failing(func(c storetest.Call) error {
		if !armed.Load() {
			return nil
		}
		switch {
		case c.Kind == "punch":
			armed.Store(false)
		case c.Kind == "write" && c.InLog() && frames.Add(1) > 3:
			refused.Store(true)
			return vfs.ErrNoSpace
		}
		return nil
	})
	s := storetest.OpenOn(t, disk, t.TempDir(), storetest.Options())
	m := storetest.Model(t, s, crashtest.Windowed(24))
	for i := range prompts {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i, 64*40/prompts), Scope: "a"})
	}
	before := storetest.Engine(s).Ledger.Counts().Blocks
	armed.Store(true)
	out, err := s.DeleteScope(t.Context(), "a")
	if err != nil || int64(out.Blocks) != before || storetest.Engine(s).Ledger.Counts().Blocks != 0 {
		t.Errorf("%d blocks of %d deleted: %v", out.Blocks, before, err)
	}
	if !refused.Load() {
		t.Error("the log was never full: this test shows nothing")
	}
}

// A deletion destroys what it removed when all of it is, however many puts go on beside it: each time that something is destroyed, all that they
// wrote is synced first.
func TestPutsBesideALargeDeletion(t *testing.T) {
	const blocks = 4096
	var deleting atomic.Bool
	var frames, syncs atomic.Int64
	disk := storetest.Failing(func(c storetest.Call) error {
		switch {
		case !deleting.Load():
		case c.Kind == "write" && c.InLog():
			frames.Add(1)
			time.Sleep(time.Millisecond) // puts, and the background worker, have their turn
		case c.Kind == "sync" && c.InSegments():
			syncs.Add(1)
		case c.Kind == "punch":
			deleting.Store(false)
		}
		return nil
	})
	o := storetest.Options()
	o.SegmentBytes, o.CheckpointBytes = 256<<20, 1<<30 // a segment that is begun is synced, too, and a checkpoint destroys what has gone so far
	s := storetest.OpenOn(t, disk, t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	doomed := kv.Prompt{Tokens: crashtest.Tokens(1, blocks*16)}
	storetest.Put(t, m, doomed)
	storetest.OK(t, s.Sync(t.Context()))
	deleting.Store(true)
	batch, _ := remove.Batches()
	done := make(chan error, 1)
	go func() {
		out, err := m.Delete(t.Context(), kv.Prompt{Tokens: doomed.Tokens[:16]})
		if err == nil && out.Blocks != blocks {
			err = fmt.Errorf("%d blocks deleted, not %d", out.Blocks, blocks)
		}
		done <- err
	}()
	for puts := 0; ; puts++ {
		select {
		case err := <-done:
			t.Logf("%d puts beside it; before something was destroyed, %d writes of the log and %d syncs of segments", puts, frames.Load(), syncs.Load())
			if err != nil || deleting.Load() || frames.Load() < blocks/int64(batch) || syncs.Load() > 3 {
				t.Errorf("err %v", err)
			}
			return
		default:
			storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(100+puts, 16)})
		}
	}
}
