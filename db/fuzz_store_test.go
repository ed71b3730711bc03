package db

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/wal"
)

// A store of a few kilobytes with every kind of file, group and log frame in it, written once and kept in testdata, so that
// an offset in a seed means the same on every machine. What it holds are tinyPrompts.
const tinyName = "testdata/tiny-store.zip"

// tinyModels are one with rows and a window, and one with a state.
func tinyModels() []kv.Descriptor {
	return []kv.Descriptor{toy(kv.Descriptor{
		Name: "tiny", BlockTokens: 16,
		Groups: []kv.Group{{Kind: kv.All}, {Kind: kv.Window, Window: 10}},
		Tensors: []kv.Tensor{
			{Role: kv.RoleK, DType: kv.F16, Width: 8},
			{Role: kv.RoleV, DType: kv.F16, Width: 8},
			{Layer: 1, Role: kv.RoleK, DType: kv.F16, Width: 8, Group: 1},
		},
	}), opaque()}
}

func tinyPrompts() []kv.Prompt {
	first := tokens(1, 40)
	return []kv.Prompt{
		{Tokens: first},
		{Tokens: concat(first[:20], tokens(2, 21)), Scope: "alice", ScopeStart: 16},
		{Tokens: concat(first[:32], tokens(3, 16)), Spans: []kv.Span{{Start: 35, Len: 5, Hash: kv.Hash{7}}}},
		{Tokens: concat(first[:16], tokens(4, 16))}, // deleted
	}
}

func tinyOptions() Options {
	o := options()
	o.SegmentBytes, o.Codec, o.Compression = 64<<10, quant.Raw, quant.S2
	return o
}

// image is the files of a store, by their names in its directory.
type image map[string][]byte

func readDir(dir string) (image, error) {
	m := image{}
	return m, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		m[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
}

// write makes the files in dir. Zeros at their ends are holes.
func (m image) write(dir string) error {
	for name, b := range m {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, bytes.TrimRight(b, "\x00"), 0o600); err != nil {
			return err
		}
		if err := os.Truncate(file, int64(len(b))); err != nil {
			return err
		}
	}
	return nil
}

func (m image) clone() image {
	out := image{}
	for name, b := range m {
		out[name] = bytes.Clone(b)
	}
	return out
}

// tinyStore reads the store, or makes it anew. Most of what is only reserved is left out.
func tinyStore(f *testing.F) image {
	if fuzzkit.Updating() {
		makeTiny(f)
	}
	return readTiny(f)
}

func readTiny(f testing.TB) image {
	m := readZip(f, tinyName)
	delete(m, path.Join(walDir, "next.wal.tmp"))
	for name, b := range m {
		if path.Dir(name) == walDir || name == indexName {
			m[name] = b[:min(len(b), (len(bytes.TrimRight(b, "\x00"))+8192)/4096*4096)]
		}
	}
	return m
}

// readZip reads a store that is kept in testdata.
func readZip(t testing.TB, name string) image {
	t.Helper()
	z, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	m := image{}
	for _, x := range z.File {
		r, err := x.Open()
		if err != nil {
			t.Fatal(err)
		}
		if m[x.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	return m
}

func makeTiny(f *testing.F) {
	dir := f.TempDir()
	s := open(f, dir, tinyOptions())
	m, blob, gone := model(f, s, tinyModels()[0]), model(f, s, tinyModels()[1]), model(f, s, plain())
	must := func(err error) {
		f.Helper()
		if err != nil {
			f.Fatal(err)
		}
	}
	p := tinyPrompts()
	put(f, m, p[0])
	put(f, blob, p[0])
	put(f, gone, kv.Prompt{Tokens: tokens(9, 16)})
	must(m.SetRef(ctx, "system", kv.Prompt{Tokens: p[0].Tokens[:32]}, RefOptions{Pinned: true, Meta: []byte("meta")}))
	must(s.Checkpoint(ctx))
	put(f, m, p[1])
	put(f, m, p[3])
	must(m.SetRef(ctx, "chat", p[1], RefOptions{Priority: 3}))
	must(m.SetRef(ctx, "dropped", p[0], RefOptions{}))
	must(s.DeleteRef(ctx, "dropped"))
	_, err := m.Delete(ctx, kv.Prompt{Tokens: p[3].Tokens[:32]})
	must(err)
	must(s.Retire(ctx, gone.Fingerprint()))
	put(f, m, p[2])
	files, err := readDir(dir) // as a process leaves it that is killed
	must(err)
	out, err := os.Create(tinyName)
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
		o := tinyOptions()
		o.ReadOnly = readOnly
		s, err := Open(ctx, dir, o)
		if err != nil {
			continue
		}
		use(t, s, sound)
		if !readOnly {
			for _, err := range []error{s.Checkpoint(ctx), s.Trim(ctx)} {
				_ = err // a damaged store may fail, but not fall
			}
		}
		if _, err := s.Verify(ctx, VerifyOptions{}); err != nil && sound {
			t.Fatalf("a store that opens cannot be verified: %v", err)
		}
		s.Close()
	}
	Verify(ctx, dir, VerifyOptions{})
}

func use(t *testing.T, s *Store, sound bool) {
	models := tinyModels()
	for _, d := range append(models, models...) { // what the first round finds damaged, the second finds flagged
		m, err := s.Register(ctx, d)
		if err != nil {
			continue
		}
		for i, p := range tinyPrompts() {
			m.Explain(ctx, p, MatchOptions{})
			x, err := m.Match(ctx, p, MatchOptions{})
			if err != nil {
				continue
			}
			if n := x.Tokens(); n < 0 || n > len(p.Tokens) {
				t.Fatalf("prompt %d of %d tokens: %d match", i, len(p.Tokens), n)
			}
			if n, err := x.StateBytes(0); err == nil && n > 1<<20 {
				t.Fatalf("a state of %d bytes", n)
			}
			rows := empty(d, len(p.Tokens))
			got, err := x.Restore(ctx, rows)
			if err == nil && sound {
				checkRows(t, d, &p, rows, got.Tokens)
			}
			if got.Tokens < 0 || got.Tokens > len(p.Tokens) {
				t.Fatalf("prompt %d of %d tokens: %d restored", i, len(p.Tokens), got.Tokens)
			}
			if err := x.View(ctx, func(StoredPlane) error { return nil }); err != nil {
				_ = err
			}
			x.Close()
		}
		rest := kv.Prompt{Tokens: concat(tinyPrompts()[0].Tokens, tokens(6, 8))}
		m.Put(ctx, rest, filled(d, &rest, 0, len(rest.Tokens)), PutOptions{})
	}
	s.Stats()
	Collect(s.Models())
	Collect(s.Log(ctx))
	Collect(s.Tombstones())
	Collect(s.Segments(ctx))
	if refs, err := Collect(s.Refs()); err == nil {
		for _, r := range refs {
			s.Ref(r.Name)
		}
	}
	for b, err := range s.Blocks(ctx) {
		if err != nil {
			break
		}
		Collect(s.Planes(ctx, b))
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
		for op := range byte(editKinds) {
			if (i+int(op))%3 == 0 {
				seeds = append(seeds, []any{at(name, len(bytes.TrimRight(tiny[name], "\x00"))/2, op, 0x81), op%2 == 0})
			}
		}
	}
	seeds = append(seeds, []any{[]byte{}, false}, []any{[]byte{}, true},
		[]any{slices.Concat(at(indexName, 0, editRemove, 0), at(formatName, 9, editSet, 7)), false},
		[]any{slices.Concat(at(bloomName, 0, editRemove, 0), at(indexName, 5000, editXor, 7)), false},
	)
	fuzzkit.Seeds(f, seeds...)
	dirs := newCrashDirs(f)
	f.Fuzz(func(t *testing.T, edits []byte, seal bool) {
		m := tiny.clone()
		m.edit(names, edits[:min(len(edits), 60)])
		if seal {
			m.seal()
		}
		dir := dirs.Next()
		defer os.RemoveAll(dir)
		if err := m.write(dir); err != nil {
			t.Fatal(err)
		}
		fuzzkit.Bounded(t, tinyBytes, func() { exercise(t, dir, !seal) })
	})
}

// FuzzLog gives a store a log of any frames, behind checksums that fit: whatever they say, the store opens or refuses, and
// can be used.
func FuzzLog(f *testing.F) {
	tiny := tinyStore(f)
	dirs := newCrashDirs(f)
	format, err := decodeFormat(formatName, tiny[formatName])
	if err != nil {
		f.Fatal(err)
	}
	dir := dirs.Next()
	if err := tiny.write(dir); err != nil {
		f.Fatal(err)
	}
	o := wal.Options{FS: vfs.OS, Dir: filepath.Join(dir, walDir), UUID: format.UUID, PreallocBytes: 4096}
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
		m := image{}
		for name, b := range tiny {
			if path.Dir(name) != walDir && (index || name != indexName) {
				m[name] = b
			}
		}
		if len(snapshot) == 0 {
			snapshot = head
		}
		if err := m.write(dir); err != nil {
			t.Fatal(err)
		}
		o := o
		o.Dir = filepath.Join(dir, walDir)
		if err := os.Mkdir(o.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := wal.Create(o, file, first, snapshot)
		if err != nil {
			t.Fatal(err)
		}
		for len(frames) >= 3 {
			n := min(int(binary.LittleEndian.Uint16(frames[1:])), len(frames)-3)
			if kind := frames[0]; kind > oplog.KindSnapshot {
				if _, err := l.Append(kind, frames[3:3+n]); err != nil {
					t.Fatal(err)
				}
			}
			frames = frames[3+n:]
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		fuzzkit.Bounded(t, tinyBytes, func() { exercise(t, dir, false) })
	})
}

// anyOps has an operation of each kind, about what is not there.
func anyOps() []oplog.Op {
	at := loc.Loc{Segment: 0x0102, Offset: 0x1112131415161700, Length: 0x2122232425262700}
	key, model := kv.Key{1}, kv.Fingerprint{3}
	dead := []oplog.Dead{{Key: kv.Key{5}, Group: 1, Loc: at}}
	d, _ := plain().Normal()
	ref := oplog.Ref{Name: "system", Model: model, Block: key, Tokens: 70000, Pinned: true, Priority: 200, Meta: []byte("meta"), Trail: kv.Trail("trail")}
	note := oplog.Note{Model: model, Name: "canary", Value: []byte{0xca, 0xfe}}
	return []oplog.Op{
		oplog.Snapshot{
			Boot: "boot", Ends: map[uint64]int64{1: 0x3132333435363738}, Next: oplog.Counters{Seq: 1 << 60, Segment: 1 << 60, Clock: 1 << 60},
			Models: []oplog.Model{oplog.NewModel(&d, 7)}, Refs: []oplog.Ref{ref}, Tombstones: []loc.Loc{at}, Unlinked: []uint64{9},
			Flagged: []kv.Key{key}, Notes: []oplog.Note{note}, FormerRefs: oplog.FormerDeleted,
		},
		oplog.Put{Records: []oplog.Record{{Key: key, Parent: kv.Key{2}, Model: model, Loc: at, First: 16, Tokens: 16, RowCount: 16, Seq: 8}}, Dead: dead},
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
