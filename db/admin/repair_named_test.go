package admin_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// Each record in turn is damaged: its file is named, and what is copied is all that does not hang on it. Without an index, where the log still
// names the record and where it does not; with an index; beside a log whose end is torn; and after a reboot, when a power cut may have taken it.
func TestRepairNamesTheFile(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 64)...))
	cut := rebooted(t, estate{dir: storetest.Copy(t, s.Dir())})
	cut.live, cut.refs = holdings(t, cut.dir)
	torn := estateOf(t, true)
	log, b := storetest.NewestLog(t, torn.dir)
	spoil(t, log, int64(len(bytes.TrimRight(b, "\x00"))-20))
	for name, e := range map[string]estate{"closed": estateOf(t, false), "killed": estateOf(t, true), "torn log": torn, "after a reboot": cut} {
		for how, harm := range map[string]func(t *testing.T, path string, b db.Block){
			"header": func(t *testing.T, path string, b db.Block) { spoil(t, path, b.Offset+50) },
			"zeros":  func(t *testing.T, path string, b db.Block) { storetest.Write(t, path, b.Offset, make([]byte, 512)) },
		} {
			for _, index := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, index %t", name, how, index), func(t *testing.T) {
					tried := 0
					for id, b := range e.live {
						if tried++; tried > 6 {
							break
						}
						dir := storetest.Copy(t, e.dir)
						if !index {
							storetest.OK(t, os.RemoveAll(filepath.Join(dir, storetest.IndexFile)))
						}
						path := storetest.SegmentPath(dir, b.Segment)
						harm(t, path, b)
						out, to := repaired(t, e, dir)
						saved, _ := holdings(t, to)
						if _, ok := saved[id]; ok || !names(&out, path) {
							t.Errorf("record at %d of %s: saved %t, files %+v, unknown %q", b.Offset, path, ok, out.Files, out.Unknown)
						}
						for other, x := range e.live {
							if _, ok := saved[other]; !ok && !hangsOn(e, x, id) {
								t.Errorf("record at %d of segment %d is damaged, and that at %d of segment %d not copied", b.Offset, b.Segment, x.Offset, x.Segment)
							}
						}
					}
				})
			}
		}
	}
}

// hangsOn reports whether a record is of no use without another one.
func hangsOn(e estate, b db.Block, on recovery.ID) bool {
	if (recovery.ID{Key: b.Key, Group: uint8(b.Group)}) == on {
		return true
	}
	up := recovery.ID{Key: b.Parent}
	if b.Group > 0 {
		up.Key = b.Key
	} else if b.First == 0 {
		return false
	}
	return hangsOn(e, e.live[up], on)
}

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
	file := storetest.SegmentPath(killed, b.Segment)
	storetest.Write(t, file, b.Offset, make([]byte, b.Bytes))
	if out, _ := repairTo(t, killed); out.Lost != 1 || out.LostBytes != b.Bytes || !names(&out, file) {
		t.Errorf("%+v; block %v at %d is lost", out, b.Key, b.Offset)
	}
}

// A segment of which nothing is left, not even its header, is named, with an index that says what was in it and without one.
func TestRepairNamesEmptiedSegment(t *testing.T) {
	for _, index := range []bool{true, false} {
		s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
		storetest.OK(t, s.Close())
		file := filepath.Join(s.Dir(), storetest.FirstSegment)
		storetest.OK(t, os.Truncate(file, 0))
		if !index {
			storetest.OK(t, os.Truncate(filepath.Join(s.Dir(), storetest.IndexFile), 0))
		}
		if out, _ := repairTo(t, s.Dir()); !names(&out, file) || index && out.Lost != 4 {
			t.Errorf("index %t: %+v", index, out)
		}
	}
}

// Neither index nor log can be read, nor the headers of the segments of a model: its records are counted, and what else there is is saved.
func TestRepairModelsThatAreLost(t *testing.T) {
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
	if out.Lost < records || out.Records < len(e.live)-records || len(out.Files) < len(spoilt) {
		t.Errorf("%d of %d counted, %d of %d saved, files %+v", out.Lost, records, out.Records, len(e.live)-records, out.Files)
	}
}

// What the torn end of a log may have put is saved, if it is whole: it may have been acknowledged. What is not whole is counted.
func TestRepairTornEnd(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Tokens(crashtest.Tokens(1, 64)...)
	storetest.Put(t, m, p)
	last := storetest.Record(t, s, m, p, 3, 0)
	dir := storetest.Copy(t, s.Dir()) // as a kill leaves it
	log, b := storetest.NewestLog(t, dir)
	spoil(t, log, int64(len(bytes.TrimRight(b, "\x00"))-20))
	want := 64
	for lost := range 2 {
		out, to := repairTo(t, dir)
		if out.Unknown == "" || out.Lost != lost || lost > 0 && !names(&out, storetest.SegmentPath(dir, last.Segment)) {
			t.Errorf("%+v", out)
		}
		n := storetest.Open(t, to, storetest.Options())
		storetest.Expect(t, storetest.Model(t, n, crashtest.Plain()), p, want)
		file := storetest.SegmentPath(dir, last.Segment)
		record := storetest.Must(os.ReadFile(file))(t)[last.Offset : last.Offset+last.Bytes]
		spoil(t, file, last.Offset+int64(len(bytes.TrimRight(record, "\x00"))-1)) // of its last plane
		want = 48
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
	if got, _ := repairTo(t, dir); len(got.Files) > 0 {
		t.Errorf("Repair reports %+v, which Verify calls no damage", got.Files)
	}
}
