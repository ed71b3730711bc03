package engine_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// When a block was last used is known to the minute: of a put, of a match that ended in it, after the store was closed, and for a block
// that loses its last child. What a killed process had not checkpointed is not known, and wrong for nobody.
func TestLastUsed(t *testing.T) { synctest.Test(t, testLastUsed) }

func testLastUsed(t *testing.T) {
	start := time.Now()
	at := func(minute int) { time.Sleep(time.Until(start.Add(time.Duration(minute) * time.Minute))) }
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	used := func() (out []int) { // by position
		for b, err := range s.Blocks(t.Context()) {
			storetest.OK(t, err)
			for len(out) <= b.First/16 {
				out = append(out, 0)
			}
			if !b.Used.IsZero() {
				out[b.First/16] = int(b.Used.Sub(start) / time.Minute)
			}
		}
		return out
	}
	want := func(how string, want ...int) {
		t.Helper()
		got := used()
		if len(got) != len(want) {
			t.Fatalf("%s: %v, expected %v", how, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%s: %v, expected %v", how, got, want)
			}
		}
	}
	match := func(n int) {
		t.Helper()
		x, err := m.Match(t.Context(), kv.Tokens(crashtest.Tokens(1, n)...), db.MatchOptions{})
		if err != nil || x.Tokens() != n {
			t.Fatalf("%d tokens, %v", x.Tokens(), err)
		}
		storetest.OK(t, x.Close())
	}
	reopen := func() {
		t.Helper()
		storetest.OK(t, s.Close())
		s = storetest.Open(t, dir, storetest.Options())
		m = storetest.Model(t, s, crashtest.Plain())
	}
	at(100)
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 48)...))
	want("put", 100, 100, 100)
	at(200)
	match(32)
	at(250) // the match was earlier, whenever that is written
	storetest.OK(t, s.Checkpoint(t.Context()))
	want("match", 100, 200, 100)
	reopen()
	want("opened again", 100, 200, 100)
	at(300)
	match(48)
	reopen()
	want("match before closing", 100, 200, 300)
	storetest.Must(m.Delete(t.Context(), kv.Tokens(crashtest.Tokens(1, 48)...)))(t)
	want("without the last", 100, 300)
	at(400)
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 64)...))
	storetest.Crash(s)
	s = storetest.Open(t, dir, storetest.Options())
	m = storetest.Model(t, s, crashtest.Plain())
	want("killed", 100, 300, 0, 0) // the deletion is replayed, and the blocks that were put after it
}

// When a block was put is known to the second, for as long as it is stored: matches leave it, and so do kills, moves and a rebuild of the index.
func TestCreated(t *testing.T) { synctest.Test(t, testCreated) }

func testCreated(t *testing.T) {
	start := time.Now()
	at := func(second int) { time.Sleep(time.Until(start.Add(time.Duration(second) * time.Second))) }
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	want := func(how string, want ...int) { // by position, in seconds
		t.Helper()
		got := make([]int, len(want))
		for b, err := range s.Blocks(t.Context()) {
			storetest.OK(t, err)
			got[b.First/16] = int(b.Created.Sub(start) / time.Second)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %v, expected %v", how, got, want)
		}
	}
	again := func() {
		t.Helper()
		s = storetest.Open(t, dir, storetest.Options())
		m = storetest.Model(t, s, crashtest.Plain())
	}
	must := func(err error) {
		t.Helper()
		storetest.OK(t, err)
	}
	at(100)
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 48)...))
	at(160)
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 64)...))
	at(200)
	must(m.SetRef(t.Context(), "chat", kv.Tokens(crashtest.Tokens(1, 32)...), db.RefOptions{}))
	storetest.Expect(t, m, kv.Tokens(crashtest.Tokens(1, 64)...), 64)
	must(s.Checkpoint(t.Context()))
	want("put, matched, checkpointed", 100, 100, 100, 160)
	r, err := s.Ref("chat")
	if must(err); int(r.Set.Sub(start)/time.Second) != 200 || !r.Used.Equal(start.Add(200*time.Second).Truncate(time.Minute)) {
		t.Errorf("the ref was set at %v, and its block used at %v", r.Set.Sub(start), r.Used.Sub(start))
	}
	at(250)
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 80)...))
	storetest.Crash(s)
	again()
	want("killed", 100, 100, 100, 160, 250)
	must(s.Close())
	again() // so that its segment is finished
	at(300)
	if done, err := s.Compact(t.Context(), db.CompactOptions{All: true}); err != nil || done.Records == 0 {
		t.Fatalf("%+v, %v: nothing was moved", done, err)
	}
	want("moved", 100, 100, 100, 160, 250)
	must(s.Close())
	must(os.Remove(filepath.Join(dir, "index.db")))
	again()
	want("with a new index", 100, 100, 100, 160, 250)
	refs, err := db.Collect(s.Refs())
	if must(err); len(refs) != 1 || !refs[0].Used.IsZero() || refs[0].Set.IsZero() {
		t.Errorf("with a new index: %+v; expected that nobody knows when it was used", refs)
	}
}

// What was evicted is counted by how long nobody had used it, also over a Suspend; blocks of which that is not known are left out.
func TestEvictedAge(t *testing.T) { synctest.Test(t, testEvictedAge) }

func testEvictedAge(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 16)...))
	time.Sleep(72 * time.Hour)
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(2, 16)...))
	time.Sleep(5 * time.Minute)
	storetest.Must(s.Shrink(t.Context(), 0))(t)
	check := func() {
		t.Helper()
		const want = 72*time.Hour + 5*time.Minute + 5*time.Minute
		st := storetest.Stats(t, s)
		if st.Evicted != 2 || st.EvictedAge.N != 2 || st.EvictedAge.Sum < want-2*time.Minute || st.EvictedAge.Sum > want+2*time.Minute {
			t.Errorf("%d evicted, ages of %d, %v in all; expected 2, %v", st.Evicted, st.EvictedAge.N, st.EvictedAge.Sum, want)
		}
		if low, high := st.EvictedAge.Quantile(0.5), st.EvictedAge.Quantile(1); low > time.Hour || high < 72*time.Hour || high > 144*time.Hour {
			t.Errorf("half of the ages are under %v, all under %v", low, high)
		}
	}
	check()
	storetest.OK(t, s.Suspend(t.Context()))
	storetest.OK(t, s.Resume(t.Context()))
	check()
}

// A change that is not made does not take with it what matches have used.
func TestUsesOutliveAFailedChange(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 32)}
	storetest.Put(t, m, p)
	storetest.Expect(t, m, p, 32)
	e := storetest.Engine(s)
	storetest.Must(e.Ledger.Begin())(t).End()
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 32)})
	c := e.Hasher.Chain(m.Fingerprint(), m.Descriptor().BlockTokens, &p)
	v := e.View()
	defer v.Release()
	if x, ok, err := v.Get(c.Key(1), 0); err != nil || !ok || x.Hits != 1 {
		t.Errorf("%d hits, expected 1 (%v, %v)", x.Hits, ok, err)
	}
}
