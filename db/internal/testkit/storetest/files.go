package storetest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Names in a store's directory (docs/format).
const (
	FormatFile   = "FORMAT"
	LockFile     = "LOCK"
	IndexFile    = "index.db"
	BloomFile    = "bloom"
	UnsyncedFile = "unsynced"
	LogDir       = "wal"
	SegmentsDir  = "segments"

	FormatBytes  = 88
	FirstSegment = SegmentsDir + "/0000000000000001.seg"
)

// SegmentPath is the file of a segment.
func SegmentPath(dir string, segment uint64) string {
	return filepath.Join(dir, SegmentsDir, fmt.Sprintf("%016x.seg", segment))
}

// Hasher names prompts as the store in dir does.
func Hasher(t testing.TB, dir string) kv.Hasher {
	t.Helper()
	const seedAt = 56 // docs/format/store.md
	b, err := os.ReadFile(filepath.Join(dir, FormatFile))
	if err != nil || len(b) != FormatBytes {
		t.Fatal(len(b), err)
	}
	return kv.NewHasher(kv.Seed(b[seedAt:]))
}

// Remove takes a file of a store.
func Remove(t testing.TB, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// CutPower makes the next open of a copy look at everything, as after a power cut, and takes the index if that is lost.
func CutPower(t testing.TB, dir string, lost bool) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, UnsyncedFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if lost {
		Remove(t, dir, IndexFile)
	}
}

// Key is the key of block i of a prompt.
func Key(t testing.TB, s *db.Store, m *db.Model, p kv.Prompt, i int) kv.Key {
	t.Helper()
	return Hasher(t, s.Dir()).Chain(m.Fingerprint(), m.Descriptor().BlockTokens, &p).Key(i)
}

// FindRecord returns the stored record of a group of a prompt's block i, if there is one.
func FindRecord(t testing.TB, s *db.Store, m *db.Model, p kv.Prompt, i, group int) (db.Block, bool) {
	t.Helper()
	key := Key(t, s, m, p, i)
	for b, err := range s.Blocks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if b.Key == key && b.Group == group {
			return b, true
		}
	}
	return db.Block{}, false
}

// Record is FindRecord of one that must be there.
func Record(t testing.TB, s *db.Store, m *db.Model, p kv.Prompt, i, group int) db.Block {
	t.Helper()
	b, ok := FindRecord(t, s, m, p, i, group)
	if !ok {
		t.Fatalf("no record of group %d of block %d is stored", group, i)
	}
	return b
}

// Place is where the record of a group of a prompt's block i lies.
func Place(t testing.TB, s *db.Store, m *db.Model, p kv.Prompt, i, group int) loc.Loc {
	t.Helper()
	b := Record(t, s, m, p, i, group)
	return loc.Loc{Segment: b.Segment, Offset: b.Offset, Length: b.Bytes}
}

// ZeroPlace zeroes the first n bytes of what lies there.
func ZeroPlace(t testing.TB, dir string, l loc.Loc, n int64) {
	t.Helper()
	Write(t, SegmentPath(dir, l.Segment), l.Offset, make([]byte, n))
}

// Write changes bytes of a file.
func Write(t testing.TB, path string, off int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(b, off)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// Flip flips a bit of a file while then runs.
func Flip(t testing.TB, path string, at int64, bit int, then func()) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	Write(t, path, at, []byte{b[0] ^ 1<<bit})
	then()
	Write(t, path, at, b)
}

// Occupied is what the files in a folder occupy, how many they are, and what each folder and each file beside them does.
func Occupied(t TB, dir string) (total int64, files int, parts map[string]int64) {
	t.Helper()
	parts = map[string]int64{}
	filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // gone since it was listed
		}
		if info, err := vfs.OS.Stat(name); err == nil {
			total += info.Allocated
			files++
			part := filepath.Base(filepath.Dir(name))
			if part != SegmentsDir && part != LogDir {
				part = d.Name()
			}
			parts[part] += info.Allocated
		}
		return nil
	})
	return total, files, parts
}

// Tree is all that a folder holds, by path, and when each was last changed.
func Tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			out[path] = "folder"
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = fmt.Sprint(d.Type(), string(b))
		if d.Name() != LockFile { // each owner writes its own number to it
			out[path] += info.ModTime().String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// SameTree fails the test where two trees of a folder differ.
func SameTree(t testing.TB, before, after map[string]string, what string) {
	t.Helper()
	for path, b := range after {
		if old, ok := before[path]; !ok || old != b {
			t.Errorf("%s changed %s (there before: %t)", what, path, ok)
		}
	}
	for path := range before {
		if _, ok := after[path]; !ok {
			t.Errorf("%s removed %s", what, path)
		}
	}
}

// Copy copies a store's files as they are: of an open store, it is what a SIGKILL at this moment would leave.
func Copy(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	CopyTo(t, dir, to)
	return to
}

// CopyTo is Copy to a folder that is not there. What is zero is a hole there.
func CopyTo(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(to, rel), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		for off := 0; off < len(b); off += 4096 {
			page := b[off:min(off+4096, len(b))]
			if slices.IndexFunc(page, func(x byte) bool { return x != 0 }) >= 0 {
				if _, err := f.WriteAt(page, int64(off)); err != nil {
					return err
				}
			}
		}
		return f.Truncate(int64(len(b)))
	})
	if err != nil {
		t.Fatal(err)
	}
}
