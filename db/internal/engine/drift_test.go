package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// After everything at once, callbacks that call the store and operations that are cancelled among it, nothing is held any more,
// and the counts are those of a store that is opened again: closed, killed, and without its index.
func TestCountsAfterEverything(t *testing.T) {
	before := runtime.NumGoroutine()
	seed := seedOf(t)
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 6<<20, 256<<10
	dir := t.TempDir()
	s := storetest.Open(t, dir, o)
	descs := []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(40), crashtest.Opaque()}
	known := func(err error) bool {
		for _, e := range []error{nil, db.ErrSuspended, db.ErrLeased, db.ErrNoSpace, db.ErrNotFound, db.ErrNotStored, db.ErrRetired, t.Context().Err()} {
			if errors.Is(err, e) {
				return true
			}
		}
		var pending *db.PendingError
		return errors.As(err, &pending) || errors.Is(err, db.ErrMatchClosed)
	}
	steps := 250
	if testing.Short() {
		steps = 60
	}
	var all sync.WaitGroup
	for g := range 5 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			prompt := func() kv.Prompt {
				p := kv.Prompt{Tokens: crashtest.Tokens(r.IntN(12), 20+r.IntN(200))}
				if r.IntN(3) == 0 {
					p.Scope, p.ScopeStart = fmt.Sprint(r.IntN(3)), 20
				}
				return p
			}
			var open []*db.Match
			of := map[*db.Match]*db.Registered{}
			for range steps {
				stop := newStopAt(r.IntN(40))
				if r.IntN(4) > 0 {
					stop = newStopAt(1 << 40)
				}
				d := descs[r.IntN(len(descs))]
				m, err := s.Register(stop, d)
				if err != nil {
					if !known(err) && !errors.Is(err, stop.stopped()) {
						t.Error(err)
					}
					continue
				}
				p := prompt()
				one := func(kind int) (string, error) {
					switch kind {
					case 0, 1, 2, 3:
						_, err := m.Put(stop, p, storetest.Filled(d, &p, 0, len(p.Tokens)), db.PutOptions{})
						return "put", err
					case 4:
						_, err := m.Delete(stop, p)
						return "delete", err
					case 5:
						return "ref", m.SetRef(stop, fmt.Sprint("ref", r.IntN(4)), p, db.RefOptions{Pinned: r.IntN(3) == 0, Priority: uint8(r.IntN(3))})
					case 6:
						return "unref", s.DeleteRef(stop, fmt.Sprint("ref", r.IntN(4)))
					case 7:
						_, err := s.DeleteScope(stop, fmt.Sprint(r.IntN(3)))
						return "delete scope", err
					case 8:
						_, err := s.Stats()
						return "stats", err
					case 9:
						return "sync", s.Sync(stop)
					case 10:
						_, err := s.Compact(stop, db.CompactOptions{})
						return "compact", err
					case 11:
						_, err := s.Shrink(stop, 2<<20)
						return "shrink", err
					case 12:
						return "checkpoint", s.Checkpoint(stop)
					case 13:
						_, err := s.Pressure(stop, db.Moderate)
						return "pressure", err
					}
					return "", nil
				}
				what := ""
				switch kind := r.IntN(24); kind {
				case 14, 15:
					what = "match"
					var x *db.Match
					if x, err = m.Match(stop, p, db.MatchOptions{}); err == nil {
						open = append(open, x)
						of[x] = &m
					}
				case 16:
					what = "restore"
					if len(open) > 0 {
						x := open[r.IntN(len(open))]
						xp := x.Prompt()
						_, err = x.Restore(stop, storetest.Empty(of[x].Descriptor(), len(xp.Tokens)))
					}
				case 17:
					what = "view"
					if len(open) > 0 {
						err = open[r.IntN(len(open))].View(stop, func(db.StoredPlane) error {
							w, err := one(r.IntN(14))
							if !known(err) && !errors.Is(err, stop.stopped()) {
								return fmt.Errorf("%s in view: %w", w, err)
							}
							return nil
						})
					}
				case 18:
					what = "layers"
					if len(open) > 0 {
						x := open[r.IntN(len(open))]
						xp := x.Prompt()
						_, err = x.RestoreLayers(stop, storetest.Empty(of[x].Descriptor(), len(xp.Tokens)), func(int, int) { one(r.IntN(14)) })
					}
				case 19:
					what = "blocks"
					n := 0
					for _, berr := range s.Blocks(t.Context()) {
						if err = berr; n > 20 || berr != nil {
							break
						}
						n++
						one(r.IntN(14))
					}
				case 20:
					what = "suspend"
					if err = s.Suspend(stop); err == nil || errors.Is(err, stop.stopped()) {
						err = s.Resume(t.Context())
					}
				case 21:
					what = "rebuild"
					if r.IntN(4) == 0 {
						storetest.DoubtIndex(s)
					}
				case 22:
					what = "retire"
					if r.IntN(8) == 0 {
						err = s.Retire(stop, m.Fingerprint())
					}
				case 23:
					what = "close match"
					if len(open) > 0 {
						err = open[0].Close()
						open = open[1:]
					}
				default:
					what, err = one(kind)
				}
				if !known(err) && !errors.Is(err, stop.stopped()) {
					t.Errorf("%s: %v", what, err)
				}
			}
			for _, x := range open {
				if err := x.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	storetest.RebuildIndex(s)
	storetest.OK(t, s.Resume(t.Context()))
	storetest.OK(t, s.Sync(t.Context()))
	idle(t, "in the end", s)
	if n, bytes := storetest.Engine(s).Segments.Pending(); n != 0 || bytes != 0 || storetest.Engine(s).Segments.Held() != 0 || len(storetest.Engine(s).Catalog.Tombstones()) != 0 {
		t.Errorf("%d records, %d bytes wait, %d are held, %d tombstones", n, bytes, storetest.Engine(s).Segments.Held(), len(storetest.Engine(s).Catalog.Tombstones()))
	}
	type counts struct{ blocks, records, bytes int64 }
	of := func(s *db.Store) counts {
		st := storetest.Must(s.Stats())(t)
		return counts{st.Blocks, st.StoredRecords, st.LiveBytes}
	}
	quiet := o
	quiet.HighWater, quiet.LowWater = 1, 1
	now := of(s)
	rows := rowsOf(t, s)
	refs := fmt.Sprint(storetest.Engine(s).Catalog.Refs())
	check := func(what, dir string) {
		t.Helper()
		if report, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{}); err != nil || len(report.Damage) > 0 {
			t.Errorf("%s: %v %v", what, err, report.Damage)
		}
		again := storetest.Open(t, dir, quiet)
		if got := of(again); got != now {
			t.Errorf("%s: %+v, expected %+v", what, got, now)
		}
		for id, x := range rowsOf(t, again) {
			if was, ok := rows[id]; !ok || was != x {
				t.Errorf("%s: block %s group %d: %+v, expected %+v", what, id.Key, id.Group, x, was)
			}
		}
		if got := fmt.Sprint(storetest.Engine(again).Catalog.Refs()); got != refs {
			t.Errorf("%s: %s, expected %s", what, got, refs)
		}
		if err := again.Close(); err != nil {
			t.Error(what, err)
		}
	}
	killed := storetest.Copy(t, dir)
	storetest.OK(t, s.Close())
	check("killed", killed)
	lost := storetest.Copy(t, dir)
	check("closed", dir)
	storetest.OK(t, os.Remove(filepath.Join(lost, storetest.IndexFile)))
	check("without an index", lost)
	storetest.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// row is what an index says of a record, but for its place and recency, and whether a block that ends where a scope begins could
// be longer: a rebuild cannot know those.
type row struct {
	parent, model      kv.Key
	scope              kv.ScopeID
	first              uint32
	tokens, from, rows uint16
	flags              uint8
	hashes             string
	class              uint64
}

func rowsOf(t *testing.T, s *db.Store) map[recovery.ID]row {
	out := map[recovery.ID]row{}
	v := storetest.Engine(s).View()
	defer v.Release()
	storetest.OK(t, v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		out[recovery.IDOf(&x)] = row{
			x.Parent, kv.Key(x.Model), x.Scope, x.First, x.Tokens, x.RowFirst, x.RowCount, x.Flags &^ index.FlagPartial, string(x.Hashes), x.Rank >> catalog.RankBits,
		}
		return true
	}))
	return out
}

// seedOf is a new seed, or DORMOUSE_SEED.
func seedOf(t testing.TB) uint64 {
	seed := rand.Uint64()
	if s := os.Getenv("DORMOUSE_SEED"); s != "" {
		n := storetest.Must(strconv.ParseUint(s, 10, 64))(t)
		seed = n
	}
	t.Logf("DORMOUSE_SEED=%d", seed)
	return seed
}
