package check_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/check"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// Files that a checkpoint is about to rename are no strange files.
func TestVerifyDuringCheckpoints(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
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
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	storetest.OK(t, s.Close())
	name := filepath.Join(dir, storetest.IndexFile)
	b := storetest.Must(os.ReadFile(name))(t)
	copy(b[:8192], make([]byte, 8192))
	storetest.OK(t, os.WriteFile(name, b, 0o600))
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
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	keep, gone := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, kv.Prompt{Tokens: crashtest.Tokens(2, 64)}
	for _, p := range []kv.Prompt{keep, gone} { // each in a segment of its own
		storetest.Put(t, m, p)
		storetest.OK(t, errors.Join(s.Suspend(t.Context()), s.Resume(t.Context())))
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
		go func() { done <- errors.Join(x.Close(), storetest.Engine(s).Inside().Reclaim(t.Context())) }()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if out, err := check.Segments(t.Context(), storetest.Engine(s), func(engine.Progress) { unlink() }); err != nil || len(out.Damage) > 0 {
		t.Errorf("%v, %v", out.Damage, err)
	}
	if after := len(storetest.Engine(s).Segments.Segments()); after != before-1 {
		t.Fatalf("%d segments, %d before: this test shows nothing", after, before)
	}
}
