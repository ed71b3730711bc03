package db_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// tinyStore reads the store, or makes it anew.
func tinyStore(f *testing.F) storetest.Image {
	if fuzzkit.Updating() {
		makeTiny(f)
		f.Skip("SKIPPED: the store was written anew: build the test again")
	}
	return storetest.Tiny(f)
}

func makeTiny(f *testing.F) {
	dir := f.TempDir()
	s := storetest.Open(f, dir, storetest.TinyOptions())
	m, blob, gone := storetest.Model(f, s, storetest.TinyModels()[0]), storetest.Model(f, s, storetest.TinyModels()[1]), storetest.Model(f, s, crashtest.Plain())
	must := func(err error) {
		f.Helper()
		storetest.OK(f, err)
	}
	p := storetest.TinyPrompts()
	storetest.Put(f, m, p[0])
	storetest.Put(f, blob, p[0])
	storetest.Put(f, gone, kv.Prompt{Tokens: crashtest.Tokens(9, 16)})
	must(m.SetRef(f.Context(), "system", kv.Prompt{Tokens: p[0].Tokens[:32]}, db.RefOptions{Pinned: true, Meta: []byte("meta")}))
	must(s.Checkpoint(f.Context()))
	storetest.Put(f, m, p[1])
	storetest.Put(f, m, p[3])
	must(m.SetRef(f.Context(), "chat", p[1], db.RefOptions{Priority: 3}))
	must(m.SetRef(f.Context(), "dropped", p[0], db.RefOptions{}))
	must(s.DeleteRef(f.Context(), "dropped"))
	_, err := m.Delete(f.Context(), kv.Prompt{Tokens: p[3].Tokens[:32]})
	must(err)
	must(s.Retire(f.Context(), gone.Fingerprint()))
	storetest.Put(f, m, p[2])
	files, err := storetest.ReadDir(dir) // as a process leaves it that is killed
	must(err)
	out, err := os.Create("internal/storetest/testdata/tiny-store.zip")
	must(err)
	z := zip.NewWriter(out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
		must(err)
		_, err = w.Write(files[name])
		must(err)
	}
	must(errors.Join(z.Close(), out.Close()))
}

// exercise does with a store what its user would, and looks at all that it says. If sound is set, the bytes of rows are those
// that were put or fail a checksum, and whatever comes back is right.
func exercise(t *testing.T, dir string, sound bool) {
	for _, readOnly := range []bool{true, false, false} {
		o := storetest.TinyOptions()
		o.ReadOnly = readOnly
		s, err := db.Open(t.Context(), dir, o)
		if err != nil {
			continue
		}
		use(t, s, sound)
		if !readOnly {
			s.Checkpoint(t.Context()) // a damaged store may fail, but not fall
			s.Pressure(t.Context(), db.Moderate)
		}
		if _, err := admin.VerifyStore(t.Context(), s, admin.VerifyOptions{}); err != nil && sound {
			t.Fatalf("a store that opens cannot be verified: %v", err)
		}
		s.Close()
	}
	admin.Verify(t.Context(), dir, admin.VerifyOptions{})
}

func use(t *testing.T, s *db.Store, sound bool) {
	models := storetest.TinyModels()
	for _, d := range append(models, models...) { // what the first round finds damaged, the second finds flagged
		m, err := s.Register(t.Context(), d)
		if err != nil {
			continue
		}
		for i, p := range storetest.TinyPrompts() {
			m.Explain(t.Context(), p, db.MatchOptions{})
			x, err := m.Match(t.Context(), p, db.MatchOptions{})
			if err != nil {
				continue
			}
			if n := x.Tokens(); n < 0 || n > len(p.Tokens) {
				t.Fatalf("prompt %d of %d tokens: %d match", i, len(p.Tokens), n)
			}
			if n, err := x.StateBytes(0); err == nil && n > 1<<20 {
				t.Fatalf("a state of %d bytes", n)
			}
			rows := storetest.Empty(d, len(p.Tokens))
			got, err := x.Restore(t.Context(), rows)
			if err == nil && sound {
				storetest.CheckRows(t, d, &p, rows, got.Tokens)
			}
			if got.Tokens < 0 || got.Tokens > len(p.Tokens) {
				t.Fatalf("prompt %d of %d tokens: %d restored", i, len(p.Tokens), got.Tokens)
			}
			if err := x.View(t.Context(), func(db.StoredPlane) error { return nil }); err != nil {
				_ = err
			}
			x.Close()
		}
		rest := kv.Prompt{Tokens: crashtest.Concat(storetest.TinyPrompts()[0].Tokens, crashtest.Tokens(6, 8))}
		m.Put(t.Context(), rest, storetest.Filled(d, &rest, 0, len(rest.Tokens)), db.PutOptions{})
	}
	s.Stats()
	db.Collect(s.Models())
	db.Collect(admin.Log(t.Context(), s))
	db.Collect(admin.Tombstones(s))
	db.Collect(admin.Segments(t.Context(), s))
	if refs, err := db.Collect(s.Refs()); err == nil {
		for _, r := range refs {
			s.Ref(r.Name)
		}
	}
	for b, err := range s.Blocks(t.Context()) {
		if err != nil {
			break
		}
		db.Collect(admin.Planes(t.Context(), s, b))
	}
}

// tinyBytes bounds what three opens of a tiny store allocate.
const tinyBytes = 192 << 20

// FuzzStore changes a store's files, six bytes an edit, makes the checksums fit again if asked to, and uses it: it does not
// panic or hang, allocates nothing by a length that was changed, and, unless checksums were forged, gives no wrong row.
func FuzzStore(f *testing.F) {
	tiny := tinyStore(f)
	names := slices.Sorted(maps.Keys(tiny))
	at := func(name string, off int, op, value byte) []byte {
		i, ok := slices.BinarySearch(names, name)
		if !ok {
			f.Fatalf("no file %s in %v", name, names)
		}
		return []byte{byte(i), byte(off), byte(off >> 8), byte(off >> 16), op, value}
	}
	var seeds [][]any
	for i, name := range names {
		if len(tiny[name]) == 0 {
			continue
		}
		for op := range byte(storetest.EditKinds) {
			if (i+int(op))%3 == 0 {
				seeds = append(seeds, []any{at(name, len(bytes.TrimRight(tiny[name], "\x00"))/2, op, 0x81), op%2 == 0})
			}
		}
	}
	seeds = append(seeds, []any{[]byte{}, false}, []any{[]byte{}, true},
		[]any{slices.Concat(at(storetest.IndexFile, 0, storetest.EditRemove, 0), at(storetest.FormatFile, 9, storetest.EditSet, 7)), false},
		[]any{slices.Concat(at(storetest.BloomFile, 0, storetest.EditRemove, 0), at(storetest.IndexFile, 5000, storetest.EditXor, 7)), false},
	)
	fuzzkit.Seeds(f, seeds...)
	dirs := crashtest.NewDirs(f)
	f.Fuzz(func(t *testing.T, edits []byte, seal bool) {
		m := tiny.Clone()
		m.Edit(names, edits[:min(len(edits), 60)])
		if seal {
			m.Seal()
		}
		dir := dirs.Next()
		defer os.RemoveAll(dir)
		storetest.OK(t, m.Write(dir))
		fuzzkit.Bounded(t, tinyBytes, func() { exercise(t, dir, !seal) })
	})
}

// FuzzLog gives a store a log of any frames, behind checksums that fit: whatever they say, the store opens or refuses, and
// can be used.
func FuzzLog(f *testing.F) {
	tiny := tinyStore(f)
	dirs := crashtest.NewDirs(f)
	dir := dirs.Next()
	storetest.OK(f, tiny.Write(dir))
	o := wal.Options{Dir: filepath.Join(dir, storetest.LogDir), UUID: kv.UUID(tiny[storetest.FormatFile][40:56]), PreallocBytes: 4096}
	var head, own []byte
	var first, file uint64
	rec, err := wal.Replay(o, func(x wal.Frame) error {
		if x.Kind == oplog.KindSnapshot {
			head, first, own = bytes.Clone(x.Payload), x.LSN+1, nil
		} else {
			own = appendLogged(own, x.Kind, x.Payload)
		}
		return nil
	})
	if err != nil || len(rec.Damage) > 0 {
		f.Fatal(rec, err)
	}
	file = rec.LastFile
	seeds := [][]any{{[]byte{}, own, true}, {[]byte{}, own, false}}
	if n := len(oplog.Kinds()); len(anyOps()) != n {
		f.Fatalf("%d of %d kinds of operations", len(anyOps()), n)
	}
	for _, op := range anyOps() {
		if payload := oplog.Encode(op); op.Kind() == oplog.KindSnapshot {
			seeds = append(seeds, []any{payload, []byte{}, true}, []any{payload, []byte{}, false})
		} else {
			seeds = append(seeds, []any{[]byte{}, appendLogged(nil, op.Kind(), payload), op.Kind()%2 == 0})
		}
	}
	fuzzkit.Seeds(f, seeds...)
	f.Fuzz(func(t *testing.T, snapshot, frames []byte, index bool) {
		dir := dirs.Next()
		defer os.RemoveAll(dir)
		m := storetest.Image{}
		for name, b := range tiny {
			if path.Dir(name) != storetest.LogDir && (index || name != storetest.IndexFile) {
				m[name] = b
			}
		}
		if len(snapshot) == 0 {
			snapshot = head
		}
		storetest.OK(t, m.Write(dir))
		o := o
		o.Dir = filepath.Join(dir, storetest.LogDir)
		storetest.OK(t, os.Mkdir(o.Dir, 0o700))
		l := storetest.Must(wal.Create(o, file, first, snapshot))(t)
		for len(frames) >= 3 {
			n := min(int(binary.LittleEndian.Uint16(frames[1:])), len(frames)-3)
			if kind := frames[0]; kind > oplog.KindSnapshot {
				storetest.Must(l.Append(kind, frames[3:3+n]))(t)
			}
			frames = frames[3+n:]
		}
		storetest.OK(t, l.Close())
		fuzzkit.Bounded(t, tinyBytes, func() { exercise(t, dir, false) })
	})
}

// anyOps has an operation of each kind, about what is not there.
func anyOps() []oplog.Op {
	at := loc.Loc{Segment: 0x0102, Offset: 0x1112131415161700, Length: 0x2122232425262700}
	key, model := kv.Key{1}, kv.Fingerprint{3}
	dead := []oplog.Dead{{Key: kv.Key{5}, Group: 1, Loc: at}}
	d, _ := crashtest.Plain().Normal()
	ref := oplog.Ref{Name: "system", Model: model, Block: key, Tokens: 70000, Pinned: true, Priority: 200, Meta: []byte("meta"), Trail: kv.Trail("trail")}
	note := oplog.Note{Model: model, Name: "canary", Value: []byte{0xca, 0xfe}}
	return []oplog.Op{
		oplog.Snapshot{
			Ends: map[uint64]int64{1: 0x3132333435363738}, Next: oplog.Counters{Seq: 1 << 60, Segment: 1 << 60, Clock: 1 << 60},
			Models: []oplog.Model{oplog.NewModel(&d, 7)}, Refs: []oplog.Ref{ref}, Tombstones: []loc.Loc{at}, Unlinked: []uint64{9},
			Flagged: []kv.Key{key}, Notes: []oplog.Note{note}, FormerRefs: oplog.FormerDeleted,
		},
		oplog.Put{Records: []index.Entry{{Key: key, Parent: kv.Key{2}, Model: model, Loc: at, First: 16, Tokens: 16, RowCount: 16, Seq: 8}}, Dead: dead},
		oplog.Remove{Deleted: true, Dead: dead, Refs: []string{"a ref"}, Seq: 9},
		oplog.Move{Key: key, From: at, To: at, Seq: 10},
		oplog.NewModel(&d, 8),
		oplog.Retire{Model: model, Segments: []uint64{7}},
		ref,
		oplog.Unref{Name: "system"},
		oplog.Flag{Key: key, Loc: at, Flags: index.FlagDamaged},
		note,
		oplog.Barrier{LSN: 1 << 40},
	}
}

// appendLogged adds a frame to the argument of FuzzLog.
func appendLogged(b []byte, kind uint8, payload []byte) []byte {
	return append(binary.LittleEndian.AppendUint16(append(b, kind), uint16(len(payload))), payload...)
}
