package recovery_test

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/space"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// A volume that goes and comes back in the same boot loses what was not synced, as a power cut does, and may leave a frame of this boot
// behind one that it took: that reads as damage, since memory would have lost neither. What was durable is there nevertheless, what was
// deleted is not, and nothing but frames of the log is named.
func TestFrameTornWithTheVolume(t *testing.T) {
	kept, other := kv.Tokens(crashtest.Tokens(1, 64)...), kv.Tokens(crashtest.Tokens(9, 32)...)
	plane := func(t *testing.T, dir string, l loc.Loc) { // its header and tokens are there, and the last page of its planes is not
		storetest.Write(t, storetest.SegmentPath(dir, l.Segment), l.End()-4096, make([]byte, 4096))
	}
	cases := map[string]func(t *testing.T, s *db.Store, m *db.Model) (at int, lost []loc.Loc){
		"move": func(t *testing.T, s *db.Store, m *db.Model) (int, []loc.Loc) {
			at := newFrame(t, s.Dir(), func() { storetest.MoveAll(t, s, func(x index.Entry) bool { return x.First == 0 }) })
			return at, []loc.Loc{storetest.Place(t, s, m, kept, 0, 0)}
		},
		"put": func(t *testing.T, s *db.Store, m *db.Model) (int, []loc.Loc) {
			longer := kv.Tokens(crashtest.Concat(kept.Tokens, crashtest.Tokens(2, 16))...)
			at := newFrame(t, s.Dir(), func() { storetest.Put(t, m, longer) })
			return at, []loc.Loc{storetest.Place(t, s, m, longer, 4, 0)}
		},
		"prefix of a whole one": func(t *testing.T, s *db.Store, m *db.Model) (int, []loc.Loc) {
			longer := kv.Tokens(crashtest.Concat(kept.Tokens, crashtest.Tokens(2, 32))...)
			at := newFrame(t, s.Dir(), func() { storetest.Put(t, m, longer.Prefix(80)) })
			storetest.Put(t, m, longer)
			return at, []loc.Loc{storetest.Place(t, s, m, longer, 4, 0)}
		},
		"longer": func(t *testing.T, s *db.Store, m *db.Model) (int, []loc.Loc) {
			tail := kv.Tokens(crashtest.Concat(kept.Tokens, crashtest.Tokens(2, 8))...)
			longer := kv.Tokens(crashtest.Concat(kept.Tokens, crashtest.Tokens(2, 16))...)
			storetest.Put(t, m, tail)
			at := newFrame(t, s.Dir(), func() { storetest.Put(t, m, longer) })
			return at, []loc.Loc{storetest.Place(t, s, m, longer, 4, 0)}
		},
	}
	for name, do := range cases {
		for _, without := range []string{"", storetest.IndexFile} {
			t.Run(name+" without "+without, func(t *testing.T) {
				o := storetest.Options()
				s, m := storetest.Fresh(t, o, crashtest.Plain())
				deleted := kv.Tokens(crashtest.Tokens(5, 64)...)
				storetest.Put(t, m, kept)
				storetest.Put(t, m, deleted)
				reader := storetest.Match(t, m, deleted) // keeps its bytes
				storetest.Must(m.Delete(t.Context(), deleted.Prefix(1)))(t)
				storetest.OK(t, s.Checkpoint(t.Context()))
				background := storetest.Engine(s).Checkpoints.Inside().Mu() // whose barrier would cover what is lost
				background.Lock()
				at, lost := do(t, s, m)
				storetest.Put(t, m, other) // a frame of this boot behind it
				image := storetest.Copy(t, s.Dir())
				background.Unlock()
				reader.Close()
				spoilFrame(t, image, at)
				for _, l := range lost {
					plane(t, image, l)
				}
				if without != "" {
					storetest.Remove(t, image, without)
				}
				s = storetest.Open(t, image, o)
				m = storetest.Model(t, s, crashtest.Plain())
				for range 2 { // the second time behind a checkpoint
					storetest.Expect(t, m, kept, 64)
					storetest.Expect(t, m, deleted, 0)
					storetest.Expect(t, m, other, 32)
					storetest.OK(t, s.Sync(t.Context()))
					rep := storetest.Must(admin.VerifyStore(t.Context(), s, admin.VerifyOptions{}))(t)
					for _, d := range rep.Damage {
						if !strings.HasSuffix(d.File, ".wal") {
							t.Errorf("verify names %v", d)
						}
					}
					storetest.OK(t, s.Close())
					s = storetest.Open(t, image, o)
					m = storetest.Model(t, s, crashtest.Plain())
				}
			})
		}
	}
}

// In mode Power segments and log are synced at the same time: neither waits for the other.
func TestPowerSyncsBothAtOnce(t *testing.T) {
	d := crashtest.NewDisk(crashtest.NewDirs(t).Next())
	o := storetest.Options()
	o.Durability = db.Power
	s := storetest.Must(storetest.TryOpen(d, d.Dir(), o))(t)
	m := storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 64)...)) // begins log and segment
	both := map[string]chan struct{}{storetest.SegmentsDir: make(chan struct{}), storetest.LogDir: make(chan struct{})}
	d.Before(func(op crashfs.Op) error {
		for folder, begun := range both {
			if op.Kind != "sync" || !strings.HasPrefix(op.Name, folder) {
				continue
			}
			close(begun)
			for _, other := range both {
				select {
				case <-other:
				case <-time.After(10 * time.Second): // it hangs else
					return errDisk
				}
			}
		}
		return nil
	})
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(2, 64)...))
	d.Before(nil)
	storetest.OK(t, s.Close())
}

// What was durable and is moved twice before the next barrier is there when the volume goes, whatever it takes of the moves: where a frame of the
// first is lost and one of the second is not, the log says nothing of where the record lay before.
func TestMovedTwiceWhenTheVolumeGoes(t *testing.T) {
	dirs := crashtest.NewDirs(t)
	d := crashtest.NewDisk(dirs.Next())
	w := &crashRun{d: d, k: crashMode{power: true}}
	storetest.OK(t, w.open())
	t.Cleanup(func() { w.kill() })
	long := kv.Tokens(crashtest.Tokens(1, 640)...)
	m := w.model(0)
	storetest.Put(t, m, long)
	storetest.OK(t, w.s.Sync(t.Context()))
	for range 2 { // without a sync in between
		var out space.Compacted
		all := func(segments.Info, int64) bool { return true }
		storetest.OK(t, storetest.Engine(w.s).Space.Inside().Rewrite(t.Context(), all, &out))
	}
	for seed := range uint64(100) {
		image := storetest.Must(d.PowerCut(rand.New(rand.NewPCG(seed, 5)), dirs.Next()))(t)
		image.SameBoot()
		x := &crashRun{d: image, k: w.k}
		storetest.OK(t, x.open())
		if n, reason := storetest.Restore(t, x.model(0), long); n != len(long.Tokens) {
			t.Errorf("loss %d: %d tokens are there (%v)", seed, n, reason)
		}
		x.kill()
		os.RemoveAll(image.Dir())
	}
}
