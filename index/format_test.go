package index

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/dormousekv/dormouse/kv"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		ok(t, os.WriteFile(path, got, 0o644))
	}
	if want := must(os.ReadFile(path))(t); !bytes.Equal(got, want) {
		t.Errorf("%s differs from what is written now; the format's version must change with it\n%s", path, got)
	}
}

// goldenIndex is an index with a row of every kind.
func goldenIndex(t *testing.T, ix *Index) *model {
	m := newModel()
	a, b, root := kv.Key{0xa, 1}, kv.Key{0xb, 2}, kv.Key{0xff}
	entries := []Entry{
		{Key: a, Parent: root, Model: kv.Fingerprint{0x77}, Scope: kv.ScopeID{}, Loc: Loc{Segment: 1, Offset: 4096, Length: 32768, Tier: 1},
			First: 0, Tokens: 64, RowCount: 64, Seq: 0x1122334455667788, Rank: 3, Hits: 4, Used: 0x01020304, Created: 0x0a0b0c0d0e, Hashes: []byte{1, 2, 0, 0, 5, 6}},
		{Key: b, Parent: a, Model: kv.Fingerprint{0x77}, Scope: kv.ScopeID{0x55}, Loc: Loc{Segment: 2, Offset: 8192, Length: 100},
			First: 64, Tokens: 3, RowFirst: 1, RowCount: 2, Flags: FlagPartial | FlagScopeRoot, Seq: 7, Rank: 0x0102030405060708, Hashes: []byte{9, 8}},
		{Key: b, Group: 1, Parent: a, Model: kv.Fingerprint{0x77}, Scope: kv.ScopeID{0x55}, Loc: Loc{Segment: 2, Offset: 12288, Length: 200}, Tokens: 3},
	}
	enter(t, ix, m, entries)
	ok(t, ix.Checkpoint(context.Background(), Applied{LSN: 42, WALFile: 2, NextSeq: 3, NextSegment: 4, Clock: 5, Extra: []byte("state")}))
	return m
}

// TestGolden pins the bytes of every kind of row, and that a file of this version can be read for ever.
func TestGolden(t *testing.T) {
	o := testOptions(t.TempDir())
	ix := must(Create(o, Applied{}))(t)
	m := goldenIndex(t, ix)
	var rows strings.Builder
	ok(t, ix.rows.scan(nil, storeKey, func(key, val []byte) (bool, error) {
		fmt.Fprintf(&rows, "%x\n    %x\n", key, encodeValue(key, val))
		return true, nil
	}))
	golden(t, "rows.golden", []byte(rows.String()))
	size := int64(ix.rows.base.meta.pages) * pageBytes
	ok(t, ix.Close())

	const old = "testdata/index-v3.db"
	if *update {
		ok(t, os.WriteFile(old, must(os.ReadFile(o.Path))(t)[:size], 0o644))
	}
	put(t, o.Path, must(os.ReadFile(old))(t))
	ix = must(Open(o))(t)
	defer ix.Close()
	v := ix.View()
	defer v.Release()
	if err := m.compare(v); err != nil {
		t.Error(err)
	}
	if a := ix.Applied(); a.LSN != 42 || a.WALFile != 2 || a.NextSeq != 3 || a.NextSegment != 4 || a.Clock != 5 || string(a.Extra) != "state" {
		t.Error(a)
	}

	// A file of a version before is told from a damaged one, and the store makes a new one.
	for version := 1; version < formatVersion; version++ {
		before := o
		before.Path = filepath.Join(t.TempDir(), "index.db")
		put(t, before.Path, must(os.ReadFile(fmt.Sprintf("testdata/index-v%d.db", version)))(t))
		if ix, err := Open(before); !errors.Is(err, ErrVersion) || errors.Is(err, ErrDamaged) {
			t.Errorf("version %d: %v, %v", version, ix, err)
		}
		if ours, err := Whose(before); !ours || err != nil {
			t.Errorf("version %d of this store is its own: %t, %v", version, ours, err)
		}
		other := before
		other.UUID = kv.UUID{99}
		for what, make := range map[string]func(Options) (*Index, error){"Open": Open, "Create": func(o Options) (*Index, error) { return Create(o, Applied{}) }} {
			if ix, err := make(other); !errors.Is(err, ErrForeign) {
				t.Errorf("%s of version %d of another store: %v, %v", what, version, ix, err)
			}
		}
	}

	b := NewBloom(4, 0.5)
	b.Add(kv.Key{1})
	b.Add(kv.Key{2})
	golden(t, "bloom.golden", []byte(hex.Dump(encodeBloom(b, testUUID, 42))))
}

// A clock that was never set may be before 1970: what is put then is stored, and nobody knows when it was.
func TestBefore1970(t *testing.T) {
	for when, want := range map[time.Time]struct {
		seconds int64
		minutes uint32
	}{
		time.Unix(-1, 0): {}, time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC): {}, {}: {},
		time.Unix(0, 0): {}, time.Unix(119, 0): {119, 1}, time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC): {13569465600, 226157760},
	} {
		if s, m := SecondsOf(when), MinutesOf(when); s != want.seconds || m != want.minutes {
			t.Errorf("%v: %d s, %d min, expected %+v", when, s, m, want)
		}
		e := Entry{Key: kv.Key{1}, Tokens: 16, Loc: Loc{Segment: 1, Offset: 4096, Length: 4096}, Created: SecondsOf(when), Used: MinutesOf(when)}
		if err := Memory().Update(func(txn *Txn) error { return txn.Put(e) }); err != nil {
			t.Errorf("%v: %v", when, err)
		}
	}
}

// boltOf makes a bbolt file of somebody else.
func boltOf(t *testing.T, path string, pageSize int, buckets ...string) []byte {
	t.Helper()
	db := must(bolt.Open(path, 0o600, &bolt.Options{PageSize: pageSize, Timeout: time.Second}))(t)
	ok(t, db.Update(func(tx *bolt.Tx) error {
		for _, name := range buckets {
			b, err := tx.CreateBucketIfNotExists([]byte(name))
			if err == nil {
				err = b.Put([]byte{0}, bytes.Repeat([]byte("a value "), 20))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
	ok(t, db.Close())
	return must(os.ReadFile(path))(t)
}

// A file that proves to be somebody else's is not replaced, whether it has the name of the index or that of the one to come.
func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	o, other := testOptions(dir), testOptions(t.TempDir())
	other.UUID = kv.UUID{99}
	build(t, other, 50)
	var many []string
	for i := range 3000 {
		many = append(many, fmt.Sprintf("bucket %04d", i))
	}
	at := filepath.Join(t.TempDir(), "bolt")
	files := map[string][]byte{}
	for what, buckets := range map[string][]string{
		"other": {"other"}, "two": {"other", "another"}, "many": many, "with a name of ours": {"dormouse", "other"}, "some": many[:60],
	} {
		files[what] = boltOf(t, at, pageBytes, buckets...)
		os.Remove(at)
	}
	files["larger pages"] = boltOf(t, at, 4*pageBytes, "dormouse")
	os.Remove(at)
	files["no bucket"] = boltOf(t, at, pageBytes)
	files["another store's"] = must(os.ReadFile(other.Path))(t)
	for what, b := range files {
		for _, path := range []string{o.Path, o.Path + ".tmp"} {
			if what == "no bucket" && path != o.Path {
				continue // so begins every file of ours
			}
			os.Remove(o.Path)
			os.Remove(o.Path + ".tmp")
			build(t, o, 5)
			put(t, path, b)
			if ix, err := Open(o); !errors.Is(err, ErrForeign) {
				t.Errorf("%s as %s: Open: %v", what, filepath.Base(path), err)
				if err == nil {
					ix.Close()
				}
			}
			if ix, err := Create(o, Applied{}); !errors.Is(err, ErrForeign) {
				t.Errorf("%s as %s: Create: %v", what, filepath.Base(path), err)
				if err == nil {
					ix.Close()
				}
			}
			if ours, err := Whose(o); path == o.Path && (ours || !errors.Is(err, ErrForeign)) || path != o.Path && (!ours || err != nil) {
				t.Errorf("%s as %s: Whose: %t, %v", what, filepath.Base(path), ours, err)
			}
			if after := must(os.ReadFile(path))(t); !bytes.Equal(after, b) {
				t.Errorf("%s as %s was changed", what, filepath.Base(path))
			}
		}
	}
	for what, put := range map[string]func(string) error{
		"a text":   func(p string) error { return os.WriteFile(p, []byte("dear diary, today the index"), 0o600) },
		"a folder": func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		os.Remove(o.Path)
		os.RemoveAll(o.Path + ".tmp")
		build(t, o, 5)
		ok(t, put(o.Path+".tmp"))
		if ix, err := Open(o); !errors.Is(err, ErrForeign) {
			t.Errorf("%s as a temporary file: %v", what, err)
			if err == nil {
				ix.Close()
			}
		}
		ro := o
		ro.ReadOnly = true
		ix, err := Open(ro)
		if err != nil {
			t.Errorf("%s as a temporary file, read-only: %v", what, err)
			continue
		}
		ix.Close()
	}
}

// What a power cut or a kill can leave under the temporary name is ours: whole, empty, in parts, or with a first sector that is torn.
func TestLeftTemporaryFiles(t *testing.T) {
	o := testOptions(t.TempDir())
	build(t, o, 50)
	whole := must(os.ReadFile(o.Path))(t)
	tmp := o.Path + ".tmp"
	try := func(what string, b []byte) {
		t.Helper()
		put(t, tmp, b)
		ix, err := Open(o)
		if err != nil {
			t.Errorf("%s: Open: %v", what, err)
			return
		}
		defer ix.Close()
		if err := ix.Compact(); err != nil {
			t.Errorf("%s: Compact: %v", what, err)
		}
	}
	try("whole", whole)
	try("empty", nil)
	try("zeros", make([]byte, 40960))
	try("without buckets", boltOf(t, filepath.Join(t.TempDir(), "x"), pageBytes))
	for n := range 100 {
		b := bytes.Clone(whole)
		clear(b[n:512])
		try(fmt.Sprintf("the first sector ends at %d", n), b)
		b = bytes.Clone(whole)
		clear(b[:n])
		try(fmt.Sprintf("the first sector begins at %d", n), b)
		try(fmt.Sprintf("%d bytes", n), whole[:n])
	}
}

// One meta page proves nothing: the one that is left may be from before the first commit, when no index has a bucket.
func TestDamagedMetaIsNotForeign(t *testing.T) {
	o := testOptions(t.TempDir())
	for _, what := range []string{"ours, as it begins", "somebody's"} {
		begins := boltOf(t, filepath.Join(t.TempDir(), "x"), pageBytes)
		if what == "somebody's" {
			begins = boltOf(t, filepath.Join(t.TempDir(), "x"), pageBytes, "notes")
		}
		for page := range 2 {
			b := bytes.Clone(begins)
			clear(b[page*pageBytes : (page+1)*pageBytes])
			if page == 0 {
				b[0] = 1 // not blank: that is ours anyway
			}
			put(t, o.Path, b)
			if ours, err := Whose(o); ours || err != nil {
				t.Errorf("%s, page %d lost: ours %t, %v", what, page, ours, err)
			}
		}
	}
}
