package engine_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/remove"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// TestDeleteOfWhatIsGoneIsDurable: a Delete that finds nothing, because another one is about to take it, is acknowledged no
// earlier than that one is durable. Else what both were asked to delete could be back after a power cut.
func TestDeleteOfWhatIsGoneIsDurable(t *testing.T) {
	for name, again := range map[string]func(s *db.Store, m *db.Model, p kv.Prompt) error{
		"delete": func(_ *db.Store, m *db.Model, p kv.Prompt) error { _, err := m.Delete(t.Context(), p); return err },
		"scope": func(s *db.Store, _ *db.Model, p kv.Prompt) error {
			_, err := s.DeleteScope(t.Context(), p.Scope)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := crashtest.NewDirs(t).Next()
			synctest.Test(t, func(t *testing.T) {
				d := crashtest.NewDisk(dir)
				s := storetest.OpenOn(t, d, dir, storetest.Options())
				m := storetest.Model(t, s, crashtest.Plain())
				p := kv.Prompt{Tokens: crashtest.Tokens(1, 80), Scope: "alice", ScopeStart: 32}
				storetest.Put(t, m, p)
				syncing, release := make(chan struct{}), make(chan struct{})
				d.Before(func(op crashfs.Op) error {
					if op.Kind == "sync" && strings.HasSuffix(op.Name, ".wal") {
						select {
						case <-syncing: // only the first
						default:
							close(syncing)
							<-release
						}
					}
					return nil
				})
				first, second := make(chan error, 1), make(chan error, 1)
				go func() { _, err := s.DeleteScope(t.Context(), "alice"); first <- err }()
				<-syncing // the frame is written, and not durable
				go func() { second <- again(s, m, p) }()
				synctest.Wait()
				select {
				case err := <-second:
					t.Errorf("acknowledged (%v) while nothing of the deletion was durable", err)
					second <- err
				default:
				}
				close(release)
				if err := <-first; err != nil {
					t.Error(err)
				}
				if err := <-second; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// withSession gives a scope a session with a frame in it.
func withSession(t *testing.T, s *db.Store, scope string) {
	f := storetest.Must(s.OpenSession(t.Context(), scope))(t)
	storetest.OK(t, f.Append(t.Context(), 1, []byte("hello")))
	storetest.OK(t, f.Close())
}

// looksForSession says that DeleteScope has looked for rows and goes on to the session, which is still there.
func looksForSession(c storetest.Call) bool {
	return c.Kind == "stat" && strings.HasSuffix(c.Name, ".tmp") && strings.Contains(c.Name, "sessions")
}

// What was stored for a scope while its deletion was under way, and evicted at once, is gone for good when the deletion returns: the
// eviction is durable, too.
func TestDeleteScopeOfWhatIsEvictedMeanwhile(t *testing.T) {
	disk := storetest.Over(vfs.OS)
	s := storetest.OpenOn(t, disk, t.TempDir(), storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	withSession(t, s, "alice")
	e, evicted := storetest.Engine(s), uint64(0)
	disk.Before(func(c storetest.Call) error {
		if looksForSession(c) && evicted == 0 {
			storetest.Meanwhile(func() {
				storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 80), Scope: "alice"})
				storetest.Must(e.Inside().EvictBlocks(100))(t)
				evicted = e.Ledger.WAL.LastLSN()
			})
		}
		return nil
	})
	storetest.Must(s.DeleteScope(t.Context(), "alice"))(t)
	if durable := e.Ledger.WAL.DurableLSN(); evicted == 0 || durable < evicted {
		t.Errorf("frame %d evicts the last of the scope, and the log is durable up to frame %d", evicted, durable)
	}
}

// What was stored for a scope between the search for its rows and the removal of its session goes with it, wherever its key lies.
func TestDeleteScopeOfWhatIsStoredMeanwhile(t *testing.T) {
	disk := storetest.Over(vfs.OS)
	s := storetest.OpenOn(t, disk, t.TempDir(), storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	withSession(t, s, "alice")
	put := func(i int) { storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i, 20), Scope: "alice"}) }
	for i := range 2 {
		put(i)
	}
	late := 0
	disk.Before(func(c storetest.Call) error {
		if looksForSession(c) && late == 0 {
			storetest.Meanwhile(func() {
				for ; late < 20; late++ {
					put(100 + late)
				}
			})
		}
		return nil
	})
	got := storetest.Must(s.DeleteScope(t.Context(), "alice"))(t)
	if left := storetest.Engine(s).Ledger.Counts().Blocks; late == 0 || left > 0 || got.Blocks != 44 {
		t.Errorf("%d prompts were stored meanwhile; %d blocks are left, and %d went", late, left, got.Blocks)
	}
}

// noBarrier is a disk that has no room for a barrier, the shortest of the log's frames, once full is set.
func noBarrier(full *atomic.Bool) func(c storetest.Call) error {
	return func(c storetest.Call) error {
		if full.Load() && c.Kind == "write" && c.InLog() && c.N < 100 {
			return db.ErrNoSpace
		}
		return nil
	}
}

// Where a full disk has no room for a barrier, a deletion of many frames goes on to its end all the same, and says so: nothing of the scope
// is left without its session.
func TestDeleteScopeWithoutRoomForABarrier(t *testing.T) {
	defer remove.SetBatches(7, 0)()
	defer remove.SetBatches(0, 14)()
	for name, meanwhile := range map[string]bool{"all at once": false, "most of it meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			var full atomic.Bool
			refuse := noBarrier(&full)
			disk := storetest.Over(vfs.OS)
			s := storetest.OpenOn(t, disk, t.TempDir(), storetest.Options())
			m := storetest.Model(t, s, crashtest.Plain())
			withSession(t, s, "alice")
			put := func() {
				for i := range 40 {
					storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i, 20), Scope: "alice"})
				}
				full.Store(true)
			}
			if !meanwhile {
				put()
			}
			disk.Before(func(c storetest.Call) error {
				if meanwhile && looksForSession(c) {
					meanwhile = false
					storetest.Meanwhile(put)
				}
				return refuse(c)
			})
			got, err := s.DeleteScope(t.Context(), "alice")
			if left := storetest.Engine(s).Ledger.Counts().Blocks; !errors.Is(err, db.ErrNoBarrier) || left > 0 || got.Blocks != 80 || got.Sessions != 1 {
				t.Errorf("%+v, %v; %d blocks are left", got, err, left)
			}
			full.Store(false)
		})
	}
}
