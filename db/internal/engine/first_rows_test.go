package engine_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A put goes on from rows of another prompt's block that are evicted meanwhile: it has them, or says that they are gone.
func TestFirstRowsAreEvicted(t *testing.T) {
	o := storetest.Options()
	o.SegmentBytes = 64 << 20
	s := storetest.Open(t, t.TempDir(), o)
	d := crashtest.Hybrid()
	d.BlockTokens = 512
	for i := range d.Tensors {
		if d.Tensors[i].Width > 0 {
			d.Tensors[i].Width = 2048
		}
	}
	m := storetest.Model(t, s, d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 300)}
	all := storetest.Filled(d, &p, 0, 300)
	q := kv.Prompt{Tokens: crashtest.Concat(p.Tokens[:250], crashtest.Tokens(2, 50))}
	some := storetest.Filled(d, &q, 250, 300)
	r := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	e := storetest.Engine(s)
	counts := map[string]int{}
	for stop := time.Now().Add(time.Second); time.Now().Before(stop); {
		storetest.Must(m.Put(t.Context(), p, all, db.PutOptions{}))(t)
		done := make(chan error)
		go func() {
			_, err := m.Put(t.Context(), q, some, db.PutOptions{})
			done <- err
		}()
		time.Sleep(time.Duration(r.IntN(4000)) * time.Microsecond)
		storetest.Must(e.Inside().EvictBlocks(2))(t)
		storetest.OK(t, e.Inside().Reclaim(t.Context()))
		err := <-done
		var missing *db.NotStoredError
		switch {
		case err == nil:
			counts["stored"]++
		case errors.As(err, &missing):
			counts[missing.Reason.Code.String()]++
			if missing.Reason.Code == db.Damaged {
				t.Fatalf("after %v: %v", counts, err)
			}
		default:
			t.Fatal(err)
		}
		storetest.Must(e.Inside().EvictBlocks(4))(t)
		storetest.OK(t, e.Inside().Reclaim(t.Context()))
	}
	t.Log(counts)
}

// Nor does a move take them away.
func TestFirstRowsAreMoved(t *testing.T) {
	o := storetest.Options()
	o.SegmentBytes = 64 << 20
	s := storetest.Open(t, t.TempDir(), o)
	d := crashtest.Hybrid()
	d.BlockTokens = 512
	for i := range d.Tensors {
		if d.Tensors[i].Width > 0 {
			d.Tensors[i].Width = 2048
		}
	}
	m := storetest.Model(t, s, d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 300)}
	storetest.Must(m.Put(t.Context(), p, storetest.Filled(d, &p, 0, 300), db.PutOptions{}))(t)
	r := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for i, stop := 2, time.Now().Add(time.Second); time.Now().Before(stop); i++ {
		q := kv.Prompt{Tokens: crashtest.Concat(p.Tokens[:250], crashtest.Tokens(i, 50))}
		some := storetest.Filled(d, &q, 250, 300)
		storetest.OK(t, storetest.Engine(s).Segments.SealAll())
		done := make(chan error)
		go func() {
			_, err := s.Compact(t.Context(), db.CompactOptions{All: true})
			done <- err
		}()
		time.Sleep(time.Duration(r.IntN(8000)) * time.Microsecond)
		_, err := m.Put(t.Context(), q, some, db.PutOptions{})
		if err != nil {
			t.Fatalf("put %d beside a compaction: %v", i, err)
		}
		storetest.OK(t, <-done)
		storetest.Must(m.Delete(t.Context(), q.Prefix(280)))(t)
	}
}
