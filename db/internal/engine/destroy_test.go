package engine_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// slowHeaders is a disk on which each header that is destroyed takes a while once it is armed, and counts them.
func slowHeaders(armed *atomic.Bool, headers *atomic.Int64) *storetest.Disk {
	return storetest.Failing(func(c storetest.Call) error {
		if armed.Load() && c.InSegments() && c.Kind == "write" && c.N == 4096 {
			headers.Add(1)
			time.Sleep(200 * time.Microsecond)
		}
		return nil
	})
}

// A put that needs room waits for some of what a large deletion destroys, and not for all of it, though restores are at work all the time.
func TestPutForRoomBesideALargeDeletion(t *testing.T) {
	const blocks = 3000
	var armed atomic.Bool
	var headers atomic.Int64
	o := putsEvict(64<<20, 32<<20)
	o.CheckpointInterval = 5 * time.Second
	s := storetest.OpenOn(t, slowHeaders(&armed, &headers), t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	doomed := kv.Prompt{Tokens: crashtest.Tokens(1, blocks*16)}
	storetest.Put(t, m, doomed)
	for n := 100; storetest.Stats(t, s).Evicted == 0; n++ {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(n, 16*32)})
	}
	storetest.OK(t, storetest.Match(t, m, kv.Prompt{Tokens: doomed.Tokens[:16*(blocks-200)]}).Close()) // so that it is not evicted
	storetest.OK(t, s.Sync(t.Context()))
	storetest.Engine(s).Restores().Enter()
	defer storetest.Engine(s).Restores().Leave()
	armed.Store(true)
	done := make(chan error, 1)
	go func() {
		_, err := m.Delete(t.Context(), kv.Prompt{Tokens: doomed.Tokens[:16]})
		done <- err
	}()
	most, puts := int64(0), 0
	for over := false; !over; puts++ {
		select {
		case err := <-done:
			storetest.OK(t, err)
			over = true
		default:
		}
		before := headers.Load()
		storetest.OK(t, putNth(t, m, 100_000+puts))
		most = max(most, headers.Load()-before)
	}
	t.Logf("%d puts; %d headers were destroyed, at most %d while one put waited", puts, headers.Load(), most)
	if most > blocks/2 {
		t.Errorf("a put waited for %d headers of %d", most, headers.Load())
	}
}

// A deletion whose caller has given up does not go on destroying; the worker does.
func TestCancelledWhileDestroying(t *testing.T) {
	const blocks = 1000
	var armed atomic.Bool
	var headers atomic.Int64
	o := storetest.Options()
	o.SegmentBytes = 64 << 20
	s := storetest.OpenOn(t, slowHeaders(&armed, &headers), t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	doomed := kv.Prompt{Tokens: crashtest.Tokens(1, blocks*16)}
	storetest.Put(t, m, doomed)
	storetest.OK(t, s.Sync(t.Context()))
	armed.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for headers.Load() == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		cancel()
	}()
	out, err := m.Delete(ctx, kv.Prompt{Tokens: doomed.Tokens[:16]})
	if n := headers.Load(); out.Blocks != blocks || !errors.Is(err, context.Canceled) || n > blocks/2 {
		t.Errorf("%d blocks deleted, %d headers destroyed: %v", out.Blocks, n, err)
	}
	armed.Store(false)
	storetest.Eventually(t, "the worker destroys the rest", func() bool {
		n, _ := storetest.Engine(s).Segments.Pending()
		return n == 0
	})
}

// While one match keeps a record that was deleted, others cost no syncs when they are closed.
func TestMatchesCloseBesideOneThatKeeps(t *testing.T) {
	var counting atomic.Bool
	var syncs atomic.Int64
	disk := storetest.Failing(func(c storetest.Call) error {
		if counting.Load() && c.Kind == "sync" {
			syncs.Add(1)
		}
		return nil
	})
	o := storetest.Options()
	o.SegmentBytes = 64 << 20
	s := storetest.OpenOn(t, disk, t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	gone, chat := kv.Prompt{Tokens: crashtest.Tokens(1, 320)}, kv.Prompt{Tokens: crashtest.Tokens(2, 320)}
	storetest.Put(t, m, gone)
	storetest.Put(t, m, chat)
	storetest.OK(t, s.Sync(t.Context()))
	keeps := storetest.Match(t, m, gone)
	storetest.Must(m.Delete(t.Context(), gone.Prefix(300)))(t)
	counting.Store(true)
	for i := range 50 { // turns of a conversation
		x := storetest.Match(t, m, chat)
		chat.Tokens = crashtest.Concat(chat.Tokens, crashtest.Tokens(1000+i, 7))
		storetest.Must(x.Extend(t.Context(), chat, storetest.Filled(crashtest.Plain(), &chat, x.Tokens(), len(chat.Tokens)), db.PutOptions{}))(t)
		storetest.OK(t, x.Close())
		time.Sleep(2 * time.Millisecond) // the worker has its turn
	}
	if n := syncs.Load(); n > 2 {
		t.Errorf("%d syncs beside 50 turns", n)
	}
	storetest.OK(t, keeps.Close())
	storetest.Eventually(t, "what the match kept is destroyed", func() bool {
		n, _ := storetest.Engine(s).Segments.Pending()
		return n == 0
	})
}

// Matches that are closed beside a deletion do not have the worker destroy what that does: the two would have the lock in turns, with a sync each.
func TestMatchesCloseBesideALargeDeletion(t *testing.T) {
	const blocks = 1000
	var armed atomic.Bool
	var syncs atomic.Int64
	disk := storetest.Failing(func(c storetest.Call) error {
		switch {
		case !armed.Load() || !c.InSegments():
		case c.Kind == "sync":
			syncs.Add(1)
		case c.Kind == "write" && c.N == 4096:
			time.Sleep(200 * time.Microsecond)
		}
		return nil
	})
	o := storetest.Options()
	o.SegmentBytes = 64 << 20
	s := storetest.OpenOn(t, disk, t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	doomed, chat := kv.Prompt{Tokens: crashtest.Tokens(1, blocks*16)}, kv.Prompt{Tokens: crashtest.Tokens(2, 64)}
	storetest.Put(t, m, doomed)
	storetest.Put(t, m, chat)
	storetest.OK(t, s.Sync(t.Context()))
	armed.Store(true)
	done := make(chan error, 1)
	go func() {
		_, err := m.Delete(t.Context(), doomed.Prefix(16))
		done <- err
	}()
	matches := 0
	for over := false; !over; matches++ {
		select {
		case err := <-done:
			storetest.OK(t, err)
			over = true
		default:
			storetest.Expect(t, m, chat, 64)
		}
	}
	t.Logf("%d matches, %d syncs", matches, syncs.Load())
	if n := syncs.Load(); n > 8 {
		t.Errorf("a deletion took %d syncs of segments beside %d matches", n, matches)
	}
}

// What cannot be destroyed keeps the worker from nothing: the Bloom filter is built anew all the same.
func TestBloomBesideWhatCannotBeDestroyed(t *testing.T) {
	var denied atomic.Bool
	disk := storetest.Shut(vfs.OS, "0000000000000001.seg", &denied, syscall.EIO)
	dir := t.TempDir()
	s := storetest.OpenOn(t, disk, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	for i := range 24 {
		storetest.Put(t, m, kv.Tokens(crashtest.Tokens(i, 320)...))
	}
	storetest.OK(t, s.Close())
	s = storetest.OpenOn(t, disk, dir, storetest.Options())
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(999, 16)...))
	denied.Store(true)
	if _, err := m.Delete(t.Context(), kv.Tokens(crashtest.Tokens(1, 16)...)); !errors.Is(err, db.ErrNotDestroyed) {
		t.Fatal(err)
	}
	storetest.Engine(s).Filter.Current().Store(nil) // as after many removals
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1000, 16)...))
	storetest.Eventually(t, "the filter is there", func() bool { return storetest.Engine(s).Filter.Current().Load() != nil })
	denied.Store(false)
}

// What could not be destroyed is tried again by the worker, though nobody does anything with the store.
func TestIdleStoreTriesAgain(t *testing.T) {
	var denied atomic.Bool
	disk := storetest.Failing(func(c storetest.Call) error {
		if denied.Load() && c.InSegments() && c.Kind == "punch" {
			return errors.New("input/output error")
		}
		return nil
	})
	o := storetest.Options()
	o.CheckpointInterval = 20 * time.Millisecond
	s := storetest.OpenOn(t, disk, t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Tokens(crashtest.Tokens(1, 320)...)
	storetest.Put(t, m, p)
	storetest.OK(t, s.Checkpoint(t.Context()))
	denied.Store(true)
	if _, err := m.Delete(t.Context(), p.Prefix(16)); !errors.Is(err, db.ErrNotDestroyed) {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // checkpoints of the deletion itself
	denied.Store(false)
	storetest.Eventually(t, "it is destroyed", func() bool {
		n, _ := storetest.Engine(s).Segments.Pending()
		return n == 0
	})
}

// A deletion of many records on a disk that refuses all of them has a short error, and each turn of the worker tries a few of them.
func TestDeletionThatDestroysNothing(t *testing.T) {
	const blocks = 2000
	var denied atomic.Bool
	var calls atomic.Int64
	disk := storetest.Failing(func(c storetest.Call) error {
		if denied.Load() && c.InSegments() && (c.Kind == "write" || c.Kind == "punch") {
			calls.Add(1)
			return errors.New("write " + filepath.Base(c.Name) + ": input/output error")
		}
		return nil
	})
	o := storetest.Options()
	o.SegmentBytes = 64 << 20
	s := storetest.OpenOn(t, disk, t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, blocks*16)}
	storetest.Put(t, m, p)
	storetest.OK(t, s.Checkpoint(t.Context()))
	denied.Store(true)
	_, err := m.Delete(t.Context(), p.Prefix(16))
	if !errors.Is(err, db.ErrNotDestroyed) || len(err.Error()) > 1000 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
	storetest.OK(t, ignore(storetest.Engine(s).Inside().Turn(t.Context(), true), db.ErrNotDestroyed)) // the checkpoint of the deletion
	calls.Store(0)
	err = storetest.Engine(s).Inside().Turn(t.Context(), true)
	if n := calls.Load(); !errors.Is(err, db.ErrNotDestroyed) || len(err.Error()) > 1000 || n == 0 || n > 4 {
		t.Errorf("a turn of the worker: %d calls, an error of %d bytes", n, len(err.Error()))
	}
	t.Logf("%d calls: %v", calls.Load(), err)
	denied.Store(false)
	storetest.OK(t, s.Sync(t.Context()))
}

// ignore is err unless it is that one.
func ignore(err, that error) error {
	if errors.Is(err, that) {
		return nil
	}
	return err
}

// A Verify that is at work in the segment where something was deleted keeps no checkpoint, and no Sync, which says that it waits. When the Verify
// has gone on, the worker destroys what waited.
func TestCheckpointAndSyncBesideVerify(t *testing.T) {
	o := storetest.Options()
	o.SegmentBytes = 8 << 20
	s, m := storetest.Fresh(t, o, crashtest.Plain())
	p, gone := kv.Prompt{Tokens: crashtest.Tokens(1, 16*200)}, kv.Prompt{Tokens: crashtest.Tokens(2, 64)}
	storetest.Put(t, m, p)
	storetest.Put(t, m, gone)
	storetest.OK(t, s.Checkpoint(t.Context()))
	x := storetest.Match(t, m, gone)
	storetest.Must(m.Delete(t.Context(), gone))(t)
	all, calls := 0, 0
	storetest.Must(admin.VerifyStore(t.Context(), s, admin.VerifyOptions{Progress: func(db.Progress) { all++ }}))(t)
	at, over := make(chan struct{}), make(chan struct{})
	verified := make(chan error, 1)
	go func() {
		_, err := admin.VerifyStore(t.Context(), s, admin.VerifyOptions{Progress: func(db.Progress) {
			if calls++; calls == all-50 { // in the middle of the only segment, which is read last
				close(at)
				<-over
			}
		}})
		verified <- err
	}()
	select {
	case <-at:
	case err := <-verified:
		t.Fatal("the Verify was not stopped: this test shows nothing", err)
	}
	storetest.OK(t, x.Close())
	done := make(chan error, 2)
	go func() {
		done <- s.Checkpoint(t.Context())
		done <- s.Sync(t.Context())
	}()
	for i := range 2 {
		select {
		case err := <-done:
			why := new(db.PendingError)
			if i == 0 && err != nil || i == 1 && (!errors.As(err, &why) || why.Records == 0 || why.Leases != 1) {
				t.Errorf("beside a Verify: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("a checkpoint, or a Sync, waits for the Verify")
			i = 2
		}
		if t.Failed() {
			break
		}
	}
	close(over)
	storetest.OK(t, <-verified)
	storetest.Eventually(t, "the worker destroys the rest", func() bool {
		n, _ := storetest.Engine(s).Segments.Pending()
		return n == 0
	})
	storetest.OK(t, s.Sync(t.Context()))
}

// What a put beside a Sync queues, and leaves for later, the Sync does not report.
func TestSyncBesideWhatAPutLeaves(t *testing.T) {
	var armed atomic.Bool
	var s *db.Store
	left := 0
	disk := storetest.Failing(func(c storetest.Call) error {
		if armed.Load() && c.Kind == "rename" && strings.Contains(filepath.Base(c.Name), "index") {
			left++
			storetest.Engine(s).Segments.DestroyUnseen([]segments.Loc{{Segment: 1 << 40, Offset: 4096, Length: 4096}})
		}
		return nil
	})
	s = storetest.OpenOn(t, disk, t.TempDir(), storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	storetest.Put(t, m, p)
	storetest.OK(t, m.SetRef(t.Context(), "chat", p, db.RefOptions{}))
	storetest.Must(m.Delete(t.Context(), p))(t)
	armed.Store(true)
	storetest.OK(t, s.Sync(t.Context()))
	armed.Store(false)
	if left == 0 {
		t.Fatal("nothing was left: this test shows nothing")
	}
}
