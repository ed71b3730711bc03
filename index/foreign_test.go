package index

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/dormousekv/dormouse/kv"
)

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
