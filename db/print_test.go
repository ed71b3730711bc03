package db_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// What Stats prints is the same each time: the order of its map of reasons does not show.
func TestStatsString(t *testing.T) {
	st := db.Stats{
		Matches: 31, Hits: 28, TokensAsked: 15000, TokensReused: 12345,
		Reasons: map[db.ReasonCode]int64{db.Complete: 20, db.NothingStored: 3, db.Diverged: 3, db.Damaged: 5},
		Puts:    5, Records: 40, Reused: 3, Replaced: 1, BytesPut: 4 << 20, Evicted: 1, Deleted: 2,
		Blocks: 17, StoredRecords: 18, LiveBytes: 3 << 19, DiskBytes: 1023, DiskHighWater: 1 << 30, Budget: 3 << 29, DiskFree: -1,
	}
	st.Lookup.N, st.Lookup.Counts[5] = 2, 2
	want := `matches: 31, of them 28 found something; 12345 of 15000 tokens reused; complete 20, damaged 5, nothing stored 3, diverged 3
puts: 5; 40 records written (4 MiB), 3 stored already, 1 replaced
removed: 1 block evicted, 2 deleted
stored: 17 blocks, 18 records (1.5 MiB)
disk: 1023 B of a budget of 1.5 GiB, at most 1 GiB so far
half below and 99 % below: match 32µs and 32µs, restore -, put -`
	for range 20 {
		if got := st.String(); got != want {
			t.Fatalf("%s\nexpected:\n%s", got, want)
		}
	}
	st.Poisoned, st.Full, st.Damaged, st.Collisions, st.PendingRecords, st.PendingBytes, st.OpenMatches = true, true, 1, 2, 3, 4<<10, 5
	st.BesideWriter, st.AsOf, st.DiskFree, st.Sessions, st.SessionBytes = true, time.Unix(0, 0), 5<<40, 1, 100
	want = `matches: 31, of them 28 found something; 12345 of 15000 tokens reused; complete 20, damaged 5, nothing stored 3, diverged 3
puts: 5; 40 records written (4 MiB), 3 stored already, 1 replaced
removed: 1 block evicted, 2 deleted
stored: 17 blocks, 18 records (1.5 MiB), 1 session (100 B)
disk: 1023 B of a budget of 1.5 GiB, at most 1 GiB so far; 5 TiB free, of them 0 B kept free
half below and 99 % below: match 32µs and 32µs, restore -, put -
an fsync has failed: nothing is written until the store is opened again
the disk is full: nothing is stored
damaged: 1 record
key collisions: 2
to be destroyed once no match sees them: 3 records (4 KiB)
open: 5 matches
another process writes; this is its checkpoint of 1970-01-01T00:00:00Z`
	if got := fmt.Sprint(st); got != want {
		t.Errorf("%s\nexpected:\n%s", got, want)
	}
}

func TestExplanationString(t *testing.T) {
	fp, scope := kv.Fingerprint{1}, kv.ScopeID{2}
	x := db.Explanation{
		Tokens: 40, Prompt: 64, Reason: db.Reason{Code: db.Diverged, At: 40},
		Blocks: []db.ExplainedBlock{
			{Start: 0, End: 16, Groups: []string{"stored"}}, {Start: 16, End: 32, Groups: []string{"stored"}},
			{Start: 32, End: 48, Scope: scope, Groups: []string{"stored", "rows [40, 48)"}},
		},
		Elsewhere: []db.Elsewhere{{Name: "other", Fingerprint: fp, Tokens: 1}, {Name: "bad", Fingerprint: fp, Err: errors.New("why")}},
	}
	want := fmt.Sprintf(`40 of 64 tokens would be reused: diverged at token 40
[0, 32): 2 blocks, shared: stored
[32, 48): 1 block, scope %s: stored, rows [40, 48)
model other (%s) has 1 token of it, and differs: 
model bad (%s): what it has of it is not known: why`, scope, fp, fp)
	if got := fmt.Sprint(x); got != want {
		t.Errorf("%s\nexpected:\n%s", got, want)
	}
}

// An explanation of a stored prompt says how long the prompt is, whatever the limit was.
func TestExplainSaysPrompt(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 40)}
	storetest.Put(t, m, p)
	other := crashtest.Plain()
	other.Weights = kv.HashOf("other")
	x := storetest.Must(storetest.Model(t, s, other).Explain(t.Context(), p, db.MatchOptions{Limit: 30}))(t)
	want := fmt.Sprintf(`0 of 40 tokens would be reused: nothing stored
model %s (%s) has 30 tokens of it, and differs: %s`, m.Descriptor().Name, m.Fingerprint(), x.Elsewhere[0].Differs[0])
	if x.Prompt != 40 || x.String() != want {
		t.Errorf("%d\n%s\nexpected:\n%s", x.Prompt, x, want)
	}
}
