package admin_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// The index is lost, and of a record that the log names, and does not take away, nothing but zeros is left: it is lost, not given up.
func TestRepairNamesWhatTheLogSaysIsThere(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 64)...))
	if err := s.Checkpoint(t.Context()); err != nil { // so that the log does not go back to the beginning
		t.Fatal(err)
	}
	p := kv.Tokens(crashtest.Tokens(2, 16)...)
	storetest.Put(t, m, p)
	var b db.Block
	for x, err := range s.Blocks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if x.Offset >= b.Offset {
			b = x
		}
	}
	killed := filepath.Join(t.TempDir(), "killed")
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(killed, storetest.IndexFile), 0); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(killed, segmentOf(b.Segment)), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, b.Bytes), b.Offset); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := admin.Repair(t.Context(), killed, filepath.Join(t.TempDir(), "new"), admin.RepairOptions{})
	if err != nil || len(out.Lost) != 1 || out.Lost[0].Block != b.Key || out.Lost[0].Offset != b.Offset {
		t.Errorf("lost %+v, unknown %q, %v; block %v at %d is", out.Lost, out.Unknown, err, b.Key, b.Offset)
	}
}

// A segment of which nothing is left, not even its header, is named where index.db is lost, too: nobody knows what was in it.
func TestRepairNamesEmptiedSegment(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{storetest.IndexFile, filepath.Join(storetest.SegmentsDir, "0000000000000001.seg")} {
		if err := os.Truncate(filepath.Join(dir, file), 0); err != nil {
			t.Fatal(err)
		}
	}
	got, err := admin.Repair(t.Context(), dir, filepath.Join(t.TempDir(), "new"), admin.RepairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Whole() || len(got.Lost) != 1 || !strings.HasSuffix(got.Lost[0].File, "0000000000000001.seg") {
		t.Errorf("lost %+v, unknown %q", got.Lost, got.Unknown)
	}
}

// The index is lost, and the header of a record is damaged that no frame of the log names any more: its place is named, whatever else of the store
// still tells of it.
func TestRepairNamesDamagedHeaders(t *testing.T) {
	e := estateOf(t, false)
	if err := os.Remove(filepath.Join(e.dir, storetest.IndexFile)); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for id, b := range e.live {
		if tried++; tried > 12 {
			break
		}
		dir := storetest.Copy(t, e.dir)
		file := filepath.Join(dir, segmentOf(b.Segment))
		spoil(t, file, b.Offset+50)
		out, to := repaired(t, e, dir)
		saved, _ := holdings(t, to)
		if _, ok := saved[id]; ok {
			t.Errorf("%d at %d of %s is saved", b.Group, b.Offset, file)
		}
		for id, b := range e.live { // and all that hangs on it
			file := filepath.Join(dir, segmentOf(b.Segment))
			if _, ok := saved[id]; !ok && !slices.ContainsFunc(out.Lost, func(l admin.LostRecord) bool {
				return l.File == file && b.Offset <= l.Offset && l.Offset < b.Offset+b.Bytes
			}) {
				t.Errorf("%d at %d of %s is not named: lost %+v", b.Group, b.Offset, file, out.Lost)
			}
		}
	}
}

// Neither index nor log can be read, nor the headers of the segments of a model: its records are named, and what else there is is saved.
func TestRepairNamesModelsThatAreLost(t *testing.T) {
	e := estateOf(t, false)
	os.Remove(filepath.Join(e.dir, storetest.IndexFile))
	os.RemoveAll(filepath.Join(e.dir, storetest.LogDir))
	var lost kv.Fingerprint
	spoilt, records := map[uint64]bool{}, 0
	for _, b := range e.live {
		if lost == (kv.Fingerprint{}) {
			lost = b.Model
		}
		if b.Model != lost {
			continue
		}
		if records++; !spoilt[b.Segment] {
			spoil(t, filepath.Join(e.dir, segmentOf(b.Segment)), 60)
			spoilt[b.Segment] = true
		}
	}
	out, _ := repaired(t, e, e.dir)
	named := 0
	for _, l := range out.Lost {
		if l.Model == lost && !l.Block.IsZero() {
			named++
		}
	}
	if named < records || out.Records < len(e.live)-records || len(out.Damage) < len(spoilt) {
		t.Errorf("%d of %d named, %d of %d saved, damage %v", named, records, out.Records, len(e.live)-records, out.Damage)
	}
}

// What the torn end of a log may have put is saved, if it is whole: it may have been acknowledged.
func TestRepairTornEnd(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	p := kv.Tokens(crashtest.Tokens(1, 64)...)
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
	dir := storetest.Copy(t, s.Dir()) // as a kill leaves it
	logs, err := filepath.Glob(filepath.Join(dir, storetest.LogDir, "*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	b, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	end := len(bytes.TrimRight(b, "\x00"))
	spoil(t, logs[0], int64(end-20))
	out, to := repairTo(t, dir)
	if out.Unknown == "" || len(out.Lost) > 0 {
		t.Errorf("%+v", out)
	}
	n := storetest.Open(t, to, storetest.Options())
	storetest.Expect(t, storetest.Model(t, n, crashtest.Plain()), p, 64)
}

// After a reboot, what the log put behind its last barrier and is not whole may have been taken by a power cut, which nobody calls damage. It is
// lost all the same, and named.
func TestRepairNamesWhatAPowerCutTook(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), kv.Tokens(crashtest.Tokens(1, 64)...))
	e := rebooted(t, estate{dir: storetest.Copy(t, s.Dir())})
	e.live, e.refs = holdings(t, e.dir)
	for _, b := range e.live {
		dir := storetest.Copy(t, e.dir)
		spoil(t, filepath.Join(dir, segmentOf(b.Segment)), b.Offset+50)
		out, to := repaired(t, e, dir)
		saved, _ := holdings(t, to)
		for id := range e.live { // with what hangs on it
			if _, ok := saved[id]; !ok && !slices.ContainsFunc(out.Lost, func(l admin.LostRecord) bool { return l.Block == id.Key && l.Group == int(id.Group) }) {
				t.Errorf("block %s at %d damaged, %s not named: lost %+v", b.Key, b.Offset, id.Key, out.Lost)
			}
		}
	}
}
