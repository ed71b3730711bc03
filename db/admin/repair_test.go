package admin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db/admin"
)

// A healthy store comes out as it was, whether it was closed or killed.
func TestRepairHealthy(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%t", killed), func(t *testing.T) {
			e := estateOf(t, killed)
			out, to := repaired(t, e, e.dir)
			if !out.Whole() || len(out.Damage) > 0 || len(out.Notes) > 0 {
				t.Errorf("%+v", out)
			}
			same(t, e, to, true, !killed) // what the log ranks, replay ranks anew
		})
	}
}

// same checks that the new store has all that the old one had.
func same(t *testing.T, e estate, to string, recency, ranks bool) {
	t.Helper()
	saved, refs := holdings(t, to)
	if len(saved) != len(e.live) || !reflect.DeepEqual(refs, e.refs) {
		t.Errorf("%d of %d records, refs %v of %v", len(saved), len(e.live), refs, e.refs)
	}
	for id, b := range e.live {
		got := saved[id]
		got.Segment, got.Offset, got.Bytes = b.Segment, b.Offset, b.Bytes
		if !recency {
			got.Hits, got.Partial, got.RowFirst, got.Rows = b.Hits, b.Partial, b.RowFirst, b.Rows
		}
		if !ranks {
			got.Rank = b.Rank
		}
		if !recency || !ranks && got.Used.IsZero() { // the log says nothing of it
			got.Used = b.Used
		}
		if got != b {
			t.Errorf("%+v, was %+v", got, b)
		}
	}
	s := reader(t, to)
	defer s.Close()
	for _, p := range e.prompts {
		if got, why := give(t, s, p); got != p.tokens {
			t.Errorf("%d tokens of a prompt of %s, were %d (%v)", got, p.desc.Name, p.tokens, why)
		}
	}
}

// Files that can be made anew from others cost no record. Where index and log are gone, refs are; the report says so.
func TestRepairMissing(t *testing.T) {
	for _, test := range []struct {
		files []string
	}{
		{[]string{"FORMAT"}},
		{[]string{"FORMAT", "bloom", "LOCK"}},
		{[]string{"index.db"}},
		{[]string{"index.db", "FORMAT", "bloom"}},
		{[]string{"wal"}},
		{[]string{"wal", "index.db"}},
		{[]string{"wal", "index.db", "FORMAT", "bloom", "LOCK"}},
	} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/killed=%t", strings.Join(test.files, "+"), killed), func(t *testing.T) {
				e := estateOf(t, killed)
				for _, f := range test.files {
					if err := os.RemoveAll(filepath.Join(e.dir, f)); err != nil {
						t.Fatal(err)
					}
				}
				out, to := repaired(t, e, e.dir)
				noLog, noIndex := slices.Contains(test.files, "wal"), slices.Contains(test.files, "index.db")
				// The index still has the model that was retired; its file is gone, and so is the frame that says why.
				out.Lost = slices.DeleteFunc(out.Lost, func(l admin.LostRecord) bool { return noLog && l.ModelName == "gone" })
				// Without the index, the log says so only until the next checkpoint.
				if unknown := noLog || noIndex && !killed; out.Whole() == unknown || len(out.Lost) > 0 {
					t.Errorf("%+v", out)
				}
				saved, refs := holdings(t, to)
				for id, b := range e.live {
					if _, ok := saved[id]; !ok {
						t.Errorf("not saved: %+v", b)
					}
				}
				if noLog && noIndex && len(refs) > 0 {
					t.Errorf("refs out of nowhere: %v", refs)
				}
				if !noLog {
					same(t, e, to, false, false)
				}
			})
		}
	}
}
