package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// stopAt is a context that is cancelled when it is asked for the n-th time.
type stopAt struct {
	context.Context
	left *atomic.Int64
}

func newStopAt(n int) stopAt {
	c := stopAt{context.Background(), new(atomic.Int64)}
	c.left.Store(int64(n))
	return c
}

func (c stopAt) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// idle checks that nobody uses the store: nothing is reserved, pinned, leased or locked.
func idle(t testing.TB, what string, s *Store) {
	t.Helper()
	e := s.eng
	if n := s.life.users.Load(); n != 0 {
		t.Fatalf("%s: %d operations are under way", what, n)
	}
	_, reserved, blocks := e.Inside().Space()
	if reserved != 0 || blocks != 0 {
		t.Fatalf("%s: %d bytes and %d blocks stay reserved", what, reserved, blocks)
	}
	pinned, evicting := e.Pins.Counts()
	if pinned != 0 || evicting != 0 {
		t.Fatalf("%s: %d blocks stay pinned, %d are being evicted", what, pinned, evicting)
	}
	if n, _ := e.Segments.Leases(); n != 0 || s.matches.Load() != 0 {
		t.Fatalf("%s: %d leases, %d matches", what, n, s.matches.Load())
	}
	if e.Inside().Workers().Busy() != 0 {
		t.Fatalf("%s: %d helpers", what, e.Inside().Workers().Busy())
	}
	eventually(t, what+": nobody holds a lock", func() bool {
		if !e.Inside().PublishGate().TryLock() {
			return false
		}
		e.Inside().PublishGate().Unlock()
		return true
	})
}

// Whatever is cancelled, whenever, leaves nothing behind that it held.
func TestCancelledAtEachPoint(t *testing.T) {
	d := windowed(40)
	long := func(seed int) kv.Prompt { return kv.Prompt{Tokens: tokens(seed, 400)} }
	for _, c := range []struct {
		name string
		do   func(ctx context.Context, s *Store, m *Model, i int) error
	}{
		{"put", func(ctx context.Context, s *Store, m *Model, i int) error {
			p := long(100 + i)
			_, err := m.Put(ctx, p, filled(d, &p, 0, len(p.Tokens)), PutOptions{})
			return err
		}},
		{"put behind a part", func(ctx context.Context, s *Store, m *Model, i int) error {
			p := long(1)
			p.Tokens = append(p.Tokens[:390:390], tokens(100+i, 130)...)
			_, err := m.Put(ctx, p, filled(d, &p, 390, len(p.Tokens)), PutOptions{})
			return err
		}},
		{"extend", func(ctx context.Context, s *Store, m *Model, i int) error {
			p := long(1)
			p.Tokens = append(p.Tokens[:400:400], tokens(100+i, 130)...)
			x, err := m.Match(context.Background(), p, MatchOptions{})
			if err != nil {
				return err
			}
			defer x.Close()
			_, err = x.Extend(ctx, p, filled(d, &p, x.Tokens(), len(p.Tokens)), PutOptions{})
			return err
		}},
		{"restore", func(ctx context.Context, s *Store, m *Model, i int) error {
			x, err := m.Match(ctx, long(1), MatchOptions{})
			if err != nil {
				return err
			}
			defer x.Close()
			_, err = x.Restore(ctx, empty(d, 400))
			return err
		}},
		{"view", func(ctx context.Context, s *Store, m *Model, i int) error {
			x, err := m.Match(ctx, long(1), MatchOptions{})
			if err != nil {
				return err
			}
			defer x.Close()
			return x.View(ctx, func(StoredPlane) error { return ctx.Err() })
		}},
		{"prefetch", func(ctx context.Context, s *Store, m *Model, i int) error {
			_, err := m.Prefetch(ctx, long(1), MatchOptions{})
			return err
		}},
		{"ref", func(ctx context.Context, s *Store, m *Model, i int) error {
			return m.SetRef(ctx, "ref", long(1), RefOptions{})
		}},
		{"checkpoint", func(ctx context.Context, s *Store, m *Model, i int) error { return s.Checkpoint(ctx) }},
		{"compact", func(ctx context.Context, s *Store, m *Model, i int) error {
			_, err := s.Compact(ctx, CompactOptions{All: true})
			return err
		}},
		{"shrink", func(ctx context.Context, s *Store, m *Model, i int) error {
			_, err := s.Shrink(ctx, s.eng.Measure()-200<<10)
			return err
		}},
		{"delete", func(ctx context.Context, s *Store, m *Model, i int) error {
			_, err := m.Delete(ctx, long(100+i))
			return errors.Join(err, s.Sync(ctx))
		}},
		{"suspend", func(ctx context.Context, s *Store, m *Model, i int) error {
			err := s.Suspend(ctx)
			return errors.Join(err, s.Resume(context.Background()))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options()
			o.Budget, o.SegmentBytes = 4<<20, 256<<10
			o.HighWater, o.LowWater = 1, 1
			if c.name == "extend" {
				o.Budget *= 8 // the open match keeps what would have to be evicted
			}
			dir := t.TempDir()
			s := open(t, dir, o)
			m := model(t, s, d)
			put(t, m, long(1))
			if err := m.SetRef(ctx, "keep", long(1), RefOptions{Pinned: true}); err != nil {
				t.Fatal(err)
			}
			fill := 3
			if strings.HasPrefix(c.name, "put") {
				fill = 12 // so that there is something to evict
			}
			for i := range fill {
				put(t, m, long(100000+i))
			}
			done := 0
			for i := 0; done < 3; i += 1 + i/16 {
				if c.name == "delete" {
					put(t, m, long(100+i))
				}
				err := c.do(newStopAt(i), s, m, i)
				if err == nil {
					done++
				} else if !errors.Is(err, context.Canceled) {
					t.Fatal(i, err)
				}
				if i > 5000 {
					t.Fatal("it is never done")
				}
				idle(t, fmt.Sprint("cancelled at ", i), s)
				if n, _, parts := occupied(t, dir); n > o.Budget {
					t.Fatalf("%d bytes are occupied of a budget of %d: %v", n, o.Budget, parts)
				}
			}
			expect(t, m, long(1), 400)
			st, err := s.Stats()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			report, err := Verify(ctx, dir, VerifyOptions{})
			if err != nil || len(report.Damage) > 0 {
				t.Fatal(err, report.Damage)
			}
			s = open(t, dir, o)
			again, err := s.Stats()
			if err != nil {
				t.Fatal(err)
			}
			if st.Blocks != again.Blocks || st.StoredRecords != again.StoredRecords || st.LiveBytes != again.LiveBytes {
				t.Errorf("%d blocks, %d records, %d bytes; opened again %d, %d, %d", st.Blocks, st.StoredRecords, st.LiveBytes,
					again.Blocks, again.StoredRecords, again.LiveBytes)
			}
			expect(t, model(t, s, d), long(1), 400)
		})
	}
}

// stopped is what an operation returns that met the end of c.
func (c stopAt) stopped() error { return context.Canceled }
