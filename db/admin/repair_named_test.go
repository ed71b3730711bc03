package admin_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// The index is lost, and of a record that the log names, and does not take away, nothing but zeros is left: it is lost, not given up.
func TestRepairNamesWhatTheLogSaysIsThere(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 64)...))
	storetest.OK(t, s.Checkpoint(t.Context())) // so that the log does not go back to the beginning
	p := kv.Tokens(crashtest.Tokens(2, 16)...)
	storetest.Put(t, m, p)
	b := storetest.Record(t, s, m, p, 0, 0)
	killed := storetest.Copy(t, s.Dir())
	storetest.OK(t, os.Truncate(filepath.Join(killed, storetest.IndexFile), 0))
	storetest.Write(t, storetest.SegmentPath(killed, b.Segment), b.Offset, make([]byte, b.Bytes))
	if out, _ := repairTo(t, killed); len(out.Lost) != 1 || out.Lost[0].Block != b.Key || out.Lost[0].Offset != b.Offset {
		t.Errorf("lost %+v, unknown %q; block %v at %d is", out.Lost, out.Unknown, b.Key, b.Offset)
	}
}

// A segment of which nothing is left, not even its header, is named where index.db is lost, too: nobody knows what was in it.
func TestRepairNamesEmptiedSegment(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	storetest.OK(t, s.Close())
	for _, file := range []string{storetest.IndexFile, storetest.FirstSegment} {
		storetest.OK(t, os.Truncate(filepath.Join(s.Dir(), file), 0))
	}
	if got, _ := repairTo(t, s.Dir()); got.Whole() || len(got.Lost) != 1 || !strings.HasSuffix(got.Lost[0].File, "0000000000000001.seg") {
		t.Errorf("lost %+v, unknown %q", got.Lost, got.Unknown)
	}
}

// The index is lost, and the header of a record is damaged that no frame of the log names any more: its place is named, whatever else of the store
// still tells of it.
func TestRepairNamesDamagedHeaders(t *testing.T) {
	e := estateOf(t, false)
	storetest.Remove(t, e.dir, storetest.IndexFile)
	tried := 0
	for id, b := range e.live {
		if tried++; tried > 12 {
			break
		}
		dir := storetest.Copy(t, e.dir)
		file := storetest.SegmentPath(dir, b.Segment)
		spoil(t, file, b.Offset+50)
		out, to := repaired(t, e, dir)
		saved, _ := holdings(t, to)
		if _, ok := saved[id]; ok {
			t.Errorf("%d at %d of %s is saved", b.Group, b.Offset, file)
		}
		for id, b := range e.live { // and all that hangs on it
			file := storetest.SegmentPath(dir, b.Segment)
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
	storetest.Remove(t, e.dir, storetest.IndexFile)
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
			spoil(t, storetest.SegmentPath(e.dir, b.Segment), 60)
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

// The index is lost, and of a record that no frame of the log names any more the first half is zeros: whether it was destroyed or is lost nobody can
// tell, and that is said.
func TestRepairSaysWhatLiesBehindZeros(t *testing.T) {
	e := estateOf(t, false)
	storetest.Remove(t, e.dir, storetest.IndexFile)
	said := 0
	for id, b := range e.live {
		dir := storetest.Copy(t, e.dir)
		storetest.Write(t, storetest.SegmentPath(dir, b.Segment), b.Offset, make([]byte, b.Bytes/2))
		out, to := repaired(t, e, dir)
		have, _ := holdings(t, to)
		if _, saved := have[id]; saved || out.Whole() {
			t.Errorf("of block %v at %d of segment %d nothing is said: damage %v, notes %q", b.Key, b.Offset, b.Segment, out.Damage, out.Notes)
		}
		if strings.Contains(out.Unknown, "behind zeros") {
			said++
		}
	}
	if said == 0 {
		t.Errorf("of %d records none is said to be unknown", len(e.live))
	}
}

// What the torn end of a log may have put is saved, if it is whole: it may have been acknowledged.
func TestRepairTornEnd(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Tokens(crashtest.Tokens(1, 64)...)
	storetest.Put(t, m, p)
	dir := storetest.Copy(t, s.Dir()) // as a kill leaves it
	log, b := storetest.NewestLog(t, dir)
	spoil(t, log, int64(len(bytes.TrimRight(b, "\x00"))-20))
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
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 64)...))
	e := rebooted(t, estate{dir: storetest.Copy(t, s.Dir())})
	e.live, e.refs = holdings(t, e.dir)
	for _, b := range e.live {
		dir := storetest.Copy(t, e.dir)
		spoil(t, storetest.SegmentPath(dir, b.Segment), b.Offset+50)
		out, to := repaired(t, e, dir)
		saved, _ := holdings(t, to)
		for id := range e.live { // with what hangs on it
			if _, ok := saved[id]; !ok && !slices.ContainsFunc(out.Lost, func(l admin.LostRecord) bool { return l.Block == id.Key && l.Group == int(id.Group) }) {
				t.Errorf("block %s at %d damaged, %s not named: lost %+v", b.Key, b.Offset, id.Key, out.Lost)
			}
		}
	}
}

// After an fsync that failed, what is wrong in the log is an end that was lost, for Repair as for Verify.
func TestRepairAfterAFailedFsync(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	for i := range 5 {
		storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1+i, 32)...))
	}
	dir := storetest.Copy(t, s.Dir()) // as a kill leaves it
	log, b := storetest.NewestLog(t, dir)
	at := 64
	for range 3 { // head, model, first put
		at += (int(binary.LittleEndian.Uint32(b[at:]))+7)/8*8 + 8
	}
	spoil(t, log, int64(at+60))
	storetest.OK(t, os.WriteFile(filepath.Join(dir, storetest.UnsyncedFile), nil, 0o600))
	seen, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{})
	if err != nil || len(seen.Damage) > 0 {
		t.Fatal(seen.Damage, err)
	}
	if got, _ := repairTo(t, dir); len(got.Damage) > 0 {
		t.Errorf("Repair reports %v, which Verify calls no damage", got.Damage)
	}
}
