package admin_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
)

// A healthy store comes out as it was, whether it was closed or killed.
func TestRepairHealthy(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%t", killed), func(t *testing.T) {
			e := estateOf(t, killed)
			out, to := repaired(t, e, e.dir)
			if !out.Whole() || len(out.Files) > 0 || len(out.Notes) > 0 {
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
					storetest.OK(t, os.RemoveAll(filepath.Join(e.dir, f)))
				}
				out, to := repaired(t, e, e.dir)
				noLog, noIndex := slices.Contains(test.files, "wal"), slices.Contains(test.files, "index.db")
				// Without the index, the log says what was given up only until the next checkpoint. Without the log, the index still has the
				// model that was retired, though its file is gone.
				if unknown := noLog || noIndex && !killed; (out.Unknown != "") != unknown || out.Lost > 0 && !noLog {
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

// harm is one thing that happens to a store: bytes [from, to) of a file are not what they were.
type harm struct {
	file     string
	from, to int64
	what     string
}

// hurt damages one place of a store at random.
func hurt(t *testing.T, r *rand.Rand, dir string) harm {
	var files []string
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != storetest.LockFile && !strings.HasSuffix(path, ".tmp") {
			files = append(files, path)
		}
		return nil
	})
	if len(files) == 0 {
		return harm{}
	}
	path := files[r.IntN(len(files))]
	rel, _ := filepath.Rel(dir, path)
	b := storetest.Must(os.ReadFile(path))(t)
	n := int64(len(b))
	h := harm{file: filepath.ToSlash(rel), from: 0, to: 1 << 62}
	write := func() { storetest.OK(t, os.WriteFile(path, b, 0o600)) }
	switch kind := r.IntN(20); {
	case kind == 0:
		h.what = "removed"
		os.Remove(path)
	case kind == 1:
		h.what = "a directory in its place"
		os.Remove(path)
		os.Mkdir(path, 0o700)
	case kind == 2 && n > 0:
		h.from = r.Int64N(n)
		h.what, b = "cut", b[:h.from]
		write()
	case kind == 3:
		h.what = "emptied"
		b = nil
		write()
	case kind < 7 && n > 0:
		h.from = r.Int64N(n) / 4096 * 4096
		h.to, h.what = min(n, h.from+4096*int64(1+r.IntN(4))), "zeroed pages"
		clear(b[h.from:h.to])
		write()
	case n > 0:
		at := r.Int64N(n)
		for range 50 { // rather where something is
			if b[at] != 0 {
				break
			}
			at = r.Int64N(n)
		}
		b[at] ^= 1 << r.IntN(8)
		h.from, h.to, h.what = at, at+1, "flipped bit"
		write()
	}
	return h
}

// spared tells what no harm has touched.
type spared struct {
	e     estate
	harms []harm
}

func (s spared) file(match func(name string) bool) bool {
	return !slices.ContainsFunc(s.harms, func(h harm) bool { return h.what != "" && match(h.file) })
}

func (s spared) bytes(file string, from, to int64) bool {
	return !slices.ContainsFunc(s.harms, func(h harm) bool { return h.file == file && h.from < to && from < h.to })
}

func segmentOf(id uint64) string { return fmt.Sprintf("segments/%016x.seg", id) }

// record reports whether a record and its prefix are untouched, and something sound says what its model is.
func (s spared) record(b db.Block) bool {
	if !s.bytes(segmentOf(b.Segment), b.Offset, b.Offset+b.Bytes) {
		return false
	}
	if !s.bytes(segmentOf(b.Segment), 0, 4096) && !s.file(func(f string) bool { return strings.HasPrefix(f, "wal/") || f == "index.db" }) {
		return false
	}
	up, ok := recovery.ID{Key: b.Parent, Group: 0}, b.First > 0
	if b.Group > 0 {
		up, ok = recovery.ID{Key: b.Key, Group: 0}, true
	}
	return !ok || s.record(s.e.live[up])
}

// untold reports whether nothing can tell that there was a record: zeros are in its place, or the end of the file is before it, and index.db, which
// named it, is harmed as well. docs/reliability.md has that among what stays.
func (s spared) untold(b db.Block) bool {
	return !s.file(func(f string) bool { return f == "index.db" }) && slices.ContainsFunc(s.harms, func(h harm) bool {
		return h.file == segmentOf(b.Segment) && (h.what == "zeroed pages" || h.what == "cut") && h.from <= b.Offset && b.Offset+b.Bytes <= h.to
	})
}

// identified reports whether something sound says what the store's UUID and seed are.
func (s spared) identified() bool {
	if s.file(func(f string) bool { return f == "FORMAT" }) {
		return true
	}
	for _, b := range s.e.live {
		if s.bytes(segmentOf(b.Segment), 0, 4096) {
			return true
		}
	}
	return false
}

// Whatever is damaged: the new store is sound and holds nothing that was not there, and all whose own bytes and whose prefix
// were not touched is in it. DORMOUSE_SEED and DORMOUSE_ROUNDS repeat a run, or make it longer.
func TestRepairDamaged(t *testing.T) {
	seed, rounds := uint64(time.Now().UnixNano()), 60
	if testing.Short() {
		rounds = 15
	}
	if s := os.Getenv("DORMOUSE_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	if s := os.Getenv("DORMOUSE_ROUNDS"); s != "" {
		rounds, _ = strconv.Atoi(s)
	}
	t.Logf("DORMOUSE_SEED=%d", seed)
	estates := []estate{estateOf(t, false), estateOf(t, true), rebooted(t, estateOf(t, true))}
	var whole, partly, none, harms, lost, saved int
	for round := range rounds {
		t.Run(fmt.Sprintf("%d", seed+uint64(round)), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed+uint64(round), 1))
			e := estates[r.IntN(3)]
			dir := storetest.Copy(t, e.dir)
			s := spared{e: e}
			for range 1 + r.IntN(4) {
				s.harms = append(s.harms, hurt(t, r, dir))
			}
			harms += len(s.harms)
			defer func() {
				if t.Failed() {
					for _, h := range s.harms {
						t.Logf("harm: %+v", h)
					}
				}
			}()
			before := storetest.Tree(t, dir)
			to := filepath.Join(t.TempDir(), "new")
			out, err := admin.Repair(t.Context(), dir, to, admin.RepairOptions{})
			storetest.SameTree(t, before, storetest.Tree(t, dir), "a repair")
			if err != nil {
				if none++; s.identified() || !errors.Is(err, db.ErrCorrupt) && !errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("%v", err)
				}
				nothingLeft(t, to)
				return
			}
			checkRepaired(t, e, &out, to, s.untold)
			have, _ := holdings(t, to)
			for id, b := range e.live {
				if _, ok := have[id]; !ok && s.record(b) {
					t.Errorf("untouched and not saved: %+v", b)
				}
			}
			if t.Failed() {
				t.Logf("files %+v", out.Files)
				t.Logf("unknown %q, notes %q", out.Unknown, out.Notes)
			}
			if out.Whole() {
				whole++
			} else {
				partly++
			}
			lost += out.Lost
			saved += out.Records
		})
	}
	t.Logf("%d repairs, %d harms: %d whole, %d in part, %d impossible; %d records saved, %d lost", rounds, harms, whole, partly, none, saved, lost)
}
