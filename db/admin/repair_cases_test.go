package admin_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/inside"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A segment whose header is damaged keeps its records when the index has to be rebuilt: they name their model and their place
// themselves. It was skipped, and then unlinked as empty.
func TestRebuildBesideDamagedHeader(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 100)}
	storetest.Put(t, m, p)
	storetest.OK(t, s.Close())
	spoil(t, filepath.Join(s.Dir(), storetest.FirstSegment), 60)
	storetest.Remove(t, s.Dir(), storetest.IndexFile)
	for range 2 {
		s = storetest.Open(t, s.Dir(), storetest.Options())
		storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 100)
		storetest.OK(t, s.Close())
	}
}

// What is put into the new store is younger than all that was copied, so it is evicted last, and wins beside an older copy.
func TestRepairGoesOnCounting(t *testing.T) {
	e := estateOf(t, true)
	_, to := repaired(t, e, e.dir)
	s := storetest.Open(t, to, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Tokens(crashtest.Tokens(99, 16)...)
	storetest.Put(t, m, p)
	young := storetest.Record(t, s, m, p, 0, 0)
	for b, err := range s.Blocks(t.Context()) {
		storetest.OK(t, err)
		if mask := uint64(1)<<56 - 1; b.Key != young.Key && b.Rank&mask >= young.Rank&mask { // the highest byte is the class
			t.Errorf("block %s ranks %x, the youngest %x", b.Key, b.Rank, young.Rank)
		}
	}
}

// A ref survives the eviction of its prefix, and so it survives Repair, with and without index or log.
func TestRepairRefsOfEvicted(t *testing.T) {
	for name, harm := range map[string]string{"sound": "", "no index": storetest.IndexFile, "no log": storetest.LogDir} {
		t.Run(name, func(t *testing.T) {
			s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
			for i, name := range []string{"gone", "pinned"} {
				p := kv.Prompt{Tokens: crashtest.Tokens(1+i, 100)}
				storetest.Put(t, m, p)
				storetest.OK(t, m.SetRef(t.Context(), name, p, db.RefOptions{Pinned: i > 0, Meta: []byte("mine")}))
			}
			storetest.Must(s.Shrink(t.Context(), 0))(t)
			storetest.OK(t, s.Close())
			if harm != "" {
				storetest.OK(t, os.RemoveAll(filepath.Join(s.Dir(), harm)))
			}
			out, to := repairTo(t, s.Dir())
			if out.Whole() != (harm != storetest.LogDir) || out.Refs != 2 || !strings.Contains(strings.Join(out.Notes, "\n"), "1 ref copied") {
				t.Errorf("%d refs, unknown %q, notes %q", out.Refs, out.Unknown, out.Notes)
			}
			if _, refs := holdings(t, to); len(refs) != 2 || string(refs["gone"].Meta) != "mine" || refs["gone"].Tokens != 100 {
				t.Errorf("refs %+v", refs)
			}
			s = storetest.Open(t, to, storetest.Options())
			storetest.Sound(t, s)
			m = storetest.Model(t, s, crashtest.Plain())
			storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 100)}, 100)
			if took, err := m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(1, 100)}); err != nil || took.Refs != 1 {
				t.Errorf("deleting what the evicted one names takes %+v, %v", took, err)
			}
		})
	}
}

// Deletions whose bytes a match keeps hold as long as the log, or the index's copy of its head, says so. Where nothing does,
// the report says that they may be back.
func TestRepairDeletions(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	kept, gone := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, kv.Prompt{Tokens: crashtest.Tokens(2, 64)}
	storetest.Put(t, m, kept)
	storetest.Put(t, m, gone)
	early := storetest.Copy(t, filepath.Join(s.Dir(), storetest.LogDir))
	x := storetest.Match(t, m, gone)
	storetest.Must(m.Delete(t.Context(), gone))(t)
	storetest.OK(t, s.Checkpoint(t.Context()))
	image := storetest.Copy(t, s.Dir())
	x.Close()
	stale := storetest.Copy(t, image) // a log that ends before the deletion, beside a later index
	os.RemoveAll(filepath.Join(stale, storetest.LogDir))
	storetest.CopyTo(t, early, filepath.Join(stale, storetest.LogDir))
	if out, to := repairTo(t, stale); len(out.Unknown) == 0 {
		t.Errorf("nothing is said of a log that lost its end: %+v", out)
	} else {
		n := storetest.Open(t, to, storetest.Options())
		storetest.Expect(t, storetest.Model(t, n, crashtest.Plain()), gone, 48)
	}
	for _, test := range []struct {
		lost []string
		back int
	}{{nil, 48}, {[]string{"wal"}, 48}, {[]string{"index.db"}, 48}, {[]string{"index.db", "wal"}, 64}} { // the last block was deleted
		old := storetest.Copy(t, image)
		for _, name := range test.lost {
			os.RemoveAll(filepath.Join(old, name))
		}
		out, to := repairTo(t, old)
		n := storetest.Open(t, to, storetest.Options())
		storetest.Expect(t, storetest.Model(t, n, crashtest.Plain()), kept, 64)
		storetest.Expect(t, storetest.Model(t, n, crashtest.Plain()), gone, test.back)
		if test.back == 64 && len(out.Unknown) == 0 {
			t.Errorf("without %v: nothing is said of deletions: %+v", test.lost, out)
		}
	}
}

// Blocks that the disk cannot read cost what is in them and nothing else: here the start of FORMAT, of a segment, of the index,
// of the log. So does an index that cannot be opened.
func TestRepairUnreadable(t *testing.T) {
	e := estateOf(t, false)
	for _, suffix := range []string{storetest.FormatFile, "0000000000000001.seg", "0000000000000002.seg", storetest.IndexFile, ".wal", "open " + storetest.IndexFile} {
		failed := 0
		suffix, open := strings.CutPrefix(suffix, "open ")
		to := filepath.Join(t.TempDir(), "new")
		disk := storetest.Failing(func(c storetest.Call) error {
			if c.Kind != map[bool]string{true: "open", false: "read"}[open] || c.Off >= 4096 || !strings.HasPrefix(c.Name, e.dir) || !strings.HasSuffix(c.Name, suffix) {
				return nil
			}
			failed++
			return errors.New("input/output error")
		})
		out, err := admin.Repair(t.Context(), e.dir, to, admin.RepairOptions{Inside: inside.Options{FS: disk}})
		if err != nil {
			t.Fatalf("%s: %v", suffix, err)
		}
		if failed == 0 || len(out.Files) == 0 {
			t.Errorf("%s: %d reads failed, %+v", suffix, failed, out)
		}
		checkRepaired(t, e, &out, to, noneUntold)
		if out.Lost > 0 || out.Records != len(e.live) {
			t.Errorf("%s: %d of %d records: %+v", suffix, out.Records, len(e.live), out.Files)
		}
	}
}

// A model that only another release knows is no damage that a repair leaves out, with all that its log says behind it.
func TestRepairModelOfAnotherRelease(t *testing.T) {
	e := estateOf(t, true)
	d := crashtest.Plain()
	d.Tensors[0].DType = 77
	storetest.AppendToLog(t, e.dir, oplog.KindModel, oplog.Encode(oplog.NewModel(&d, 1<<40)))
	before := storetest.Tree(t, e.dir)
	to := filepath.Join(t.TempDir(), "new")
	out, err := admin.Repair(t.Context(), e.dir, to, admin.RepairOptions{})
	if !errors.Is(err, db.ErrVersion) || !strings.Contains(err.Error(), "dtype 77") || !strings.Contains(err.Error(), ".wal: ") || strings.Contains(err.Error(), "offset 0:") {
		t.Errorf("%v, %+v", err, out)
	}
	nothingLeft(t, to)
	storetest.SameTree(t, before, storetest.Tree(t, e.dir), "a repair")
}

// A frame whose checksum is right and that makes no sense is damage like any other: what the log says before and behind it counts.
func TestRepairSenselessFrames(t *testing.T) {
	for kind, what := range map[uint8]string{oplog.KindPut: "log frame", oplog.KindRemove: "log frame", oplog.KindModel: "descriptor"} {
		e := estateOf(t, true)
		payload := []byte{1, 2, 3}
		if kind == oplog.KindModel {
			payload = oplog.Encode(oplog.Model{Name: "senseless", Fingerprint: kv.Fingerprint{9}, Packed: []byte{1, 2, 3}})
		}
		storetest.AppendToLog(t, e.dir, kind, payload)
		out, to := repaired(t, e, e.dir)
		if f := out.Files; len(f) != 1 || !strings.HasSuffix(f[0].Path, ".wal") || f[0].Offset == 0 || !strings.Contains(f[0].Err.Error(), what) {
			t.Errorf("kind %d: %+v", kind, out.Files)
		}
		if isModel := kind == oplog.KindModel; out.Lost > 0 || (out.LostModels == 1) != isModel || (out.Unknown == "") != isModel {
			t.Errorf("kind %d: %+v", kind, out)
		}
		same(t, e, to, false, false)
	}
}

// A repair that is stopped, wherever that is, leaves nothing.
func TestRepairStopped(t *testing.T) {
	e := estateOf(t, true)
	before := storetest.Tree(t, e.dir)
	for after := 0; ; after++ {
		c, cancel := context.WithCancel(t.Context())
		calls := 0
		if after == 0 {
			cancel()
		}
		to := filepath.Join(t.TempDir(), "new")
		_, err := admin.Repair(c, e.dir, to, admin.RepairOptions{Progress: func(db.Progress) {
			if calls++; calls == after {
				cancel()
			}
		}})
		cancel()
		if err == nil {
			if after < 10 {
				t.Errorf("only %d calls of Progress", calls)
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if nothingLeft(t, to); t.Failed() {
			t.Fatalf("stopped after %d", after)
		}
		if after > 5 {
			after += 7
		}
	}
	storetest.SameTree(t, before, storetest.Tree(t, e.dir), "a repair")
}

// A segment of another store among the files is told from the store's own. FORMAT or a log file of another store are refused by name: nothing
// says whose the store is.
func TestRepairForeignFiles(t *testing.T) {
	e, other := estateOf(t, false), estateOf(t, false)
	take := func(dir, from, as string) {
		t.Helper()
		b := storetest.Must(os.ReadFile(filepath.Join(other.dir, from)))(t)
		storetest.OK(t, os.WriteFile(filepath.Join(dir, as), b, 0o600))
	}
	log, _ := storetest.NewestLog(t, other.dir)
	for _, name := range []string{storetest.FormatFile, filepath.Join(storetest.LogDir, filepath.Base(log))} {
		for _, logged := range []bool{true, false} {
			dir := storetest.Copy(t, e.dir)
			if !logged {
				os.RemoveAll(filepath.Join(dir, storetest.LogDir))
				os.Mkdir(filepath.Join(dir, storetest.LogDir), 0o700)
			}
			take(dir, name, name)
			to := filepath.Join(t.TempDir(), "new")
			_, err := admin.Repair(t.Context(), dir, to, admin.RepairOptions{})
			if !errors.Is(err, db.ErrForeign) || !strings.Contains(err.Error(), filepath.Join(dir, name)) {
				t.Errorf("%s of another store: %v", name, err)
			}
			nothingLeft(t, to)
		}
	}
	take(e.dir, storetest.SegmentsDir+"/0000000000000002.seg", storetest.SegmentsDir+"/00000000000000ff.seg")
	out, to := repaired(t, e, e.dir)
	if !out.Whole() || len(out.Files) != 1 || !strings.Contains(out.Files[0].Err.Error(), "00000000000000ff.seg: corrupt store UUID") {
		t.Errorf("%+v", out)
	}
	same(t, e, to, true, true)
}

// An empty directory that is there is the new store's afterwards, and is there, empty, after a repair that was stopped.
func TestRepairIntoADirectoryThatIsThere(t *testing.T) {
	e := estateOf(t, false)
	to := filepath.Join(t.TempDir(), "new")
	storetest.OK(t, os.Mkdir(to, 0o700))
	was := storetest.Must(os.Lstat(to))(t)
	for _, stopped := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := admin.Repair(ctx, e.dir, to, admin.RepairOptions{Progress: func(db.Progress) {
			if stopped {
				cancel()
			}
		}})
		cancel()
		is, serr := os.Lstat(to)
		if stopped != errors.Is(err, context.Canceled) || serr != nil || !os.SameFile(was, is) {
			t.Fatalf("stopped %t: %v, %v", stopped, err, serr)
		}
		if names, _ := os.ReadDir(to); stopped != (len(names) == 0) {
			t.Errorf("stopped %t: %d files", stopped, len(names))
		}
	}
	same(t, e, to, true, true)
}

// What stands in the way of a new store is named for what it is; nobody is told to remove the damaged store.
func TestRepairInTheWay(t *testing.T) {
	e := estateOf(t, false)
	damaged := filepath.Join(t.TempDir(), "kv.repair")
	storetest.OK(t, os.Rename(storetest.Copy(t, e.dir), damaged))
	before := storetest.Tree(t, damaged)
	link := filepath.Join(t.TempDir(), "link")
	storetest.OK(t, os.Symlink("nowhere", link))
	for to, want := range map[string]string{
		strings.TrimSuffix(damaged, ".repair"): "choose another name",
		link:                                   "not a directory",
		filepath.Join(t.TempDir(), "no folder", "new"): "is not there",
	} {
		_, err := admin.Repair(t.Context(), damaged, to, admin.RepairOptions{})
		if !errors.Is(err, db.ErrNotEmpty) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "remove") {
			t.Errorf("%s: %v", to, err)
		}
	}
	storetest.SameTree(t, before, storetest.Tree(t, damaged), "a repair")
}
