package engine_test

import (
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

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
