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
	"github.com/dormousekv/dormouse/db/internal/storetest"
)

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
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := int64(len(b))
	h := harm{file: filepath.ToSlash(rel), from: 0, to: 1 << 62}
	write := func() {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
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
			dir := filepath.Join(t.TempDir(), "old")
			storetest.CopyTo(t, e.dir, dir)
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
			if !reflect.DeepEqual(before, storetest.Tree(t, dir)) {
				t.Errorf("the old store was changed")
			}
			if err != nil {
				if none++; s.identified() || !errors.Is(err, db.ErrCorrupt) && !errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("%v", err)
				}
				if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("something is left of the new store: %v", err)
				}
				return
			}
			checkRepaired(t, e, &out, to)
			have, _ := holdings(t, to)
			for id, b := range e.live {
				if _, ok := have[id]; !ok && s.record(b) {
					t.Errorf("untouched and not saved: %+v", b)
				}
			}
			if t.Failed() {
				for _, l := range out.Lost {
					t.Logf("lost: %+v", l)
				}
				t.Logf("damage %v", out.Damage)
				t.Logf("unknown %q, notes %q", out.Unknown, out.Notes)
			}
			if out.Whole() {
				whole++
			} else {
				partly++
			}
			lost += len(out.Lost)
			saved += out.Records
		})
	}
	t.Logf("%d repairs, %d harms: %d whole, %d in part, %d impossible; %d records saved, %d lost", rounds, harms, whole, partly, none, saved, lost)
}
