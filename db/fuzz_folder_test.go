package db

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/internal/fuzzkit"
)

// folderBases are what a folder holds before anything is planted in it: names of the tiny store's files.
var folderBases = []struct {
	name string
	has  func(name string) bool
}{
	{"nothing", func(string) bool { return false }},
	{"a store", func(string) bool { return true }},
	{"a store without FORMAT", func(n string) bool { return n != formatName }},
	{"wal alone", func(n string) bool { return path.Dir(n) == walDir }},
	{"a store without FORMAT and segments", func(n string) bool { return n != formatName && path.Dir(n) != segmentsDir }},
	{"segments alone", func(n string) bool { return path.Dir(n) == segmentsDir }},
	{"a store without index", func(n string) bool { return n != indexName }},
	{"a store that an fsync failed in", func(string) bool { return true }}, // and an empty unsynced
}

// folderNames are where something is planted.
var folderNames = []string{
	"notes.txt", "index.db.bak", "FORMAT.txt", "part/index.db", "repair.tmp",
	lockName, formatName, formatName + ".tmp", indexName, indexName + ".tmp", bloomName, bloomName + ".tmp", unsyncedName,
	"wal/0000000000000001.wal", "wal/00000000000000ff.wal", "wal/next.wal.tmp", "wal/next1.wal.tmp", "wal/film.wal", "wal/x/y",
	"segments/0000000000000001.seg", "segments/00000000000000ff.seg", "segments/part1.mp4", "segments/00000000000000FF.seg", "segments/x/y",
	"wal", "segments", "sessions/x", "sessions",
}

// otherStore is a store like the tiny one, with another UUID.
func otherStore(t testing.TB) image {
	dir := filepath.Join(t.TempDir(), "other")
	s, err := Open(ctx, dir, tinyOptions())
	if err != nil {
		t.Fatal(err)
	}
	m := model(t, s, tinyModels()[0])
	put(t, m, tinyPrompts()[0])
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	put(t, m, tinyPrompts()[1])
	crash(s)
	files, err := readDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// FuzzFolder opens, uses, closes, verifies and repairs folders in which a store, or a part of one, lies among files of others, under foreign
// names and under the store's own: whatever is not the store's is the same afterwards, byte for byte, and where there is no store nothing
// is made.
func FuzzFolder(f *testing.F) {
	tiny, other := readTiny(f), otherStore(f)
	var seeds [][]any
	for base := range folderBases {
		seeds = append(seeds, []any{byte(base), []byte{}})
	}
	for name := range folderNames {
		for kind := range plantKinds {
			if (name+kind)%5 == 0 {
				seeds = append(seeds, []any{byte((name + kind) / 3), []byte{byte(name), byte(kind)}})
			}
		}
	}
	seeds = append(seeds, []any{byte(0), []byte{21, plantText, 8, plantText, 10, plantText, 13, plantText, 19, plantText}})
	fuzzkit.Seeds(f, seeds...)
	dirs := newCrashDirs(f)
	f.Fuzz(func(t *testing.T, base byte, plants []byte) {
		dir := dirs.Next()
		p := plant(t, dir, tiny, other, base, plants)
		defer os.RemoveAll(dir)
		defer os.Remove(p.elsewhere)
		p.try(t)
		if t.Failed() {
			t.Logf("%s, with %v", folderBases[int(base)%len(folderBases)].name, p.kinds)
		}
	})
}

// Every kind of thing under every name, in each kind of folder, one at a time: a part of them, or with DORMOUSE_PLANTED=all every one.
func TestPlantedFiles(t *testing.T) {
	every := 5
	if testing.Short() {
		every = 17
	}
	if os.Getenv("DORMOUSE_PLANTED") == "all" {
		every = 1
	}
	tiny, other := readTiny(t), otherStore(t)
	dirs := newCrashDirs(t)
	n := 0
	for base := range folderBases {
		for name := range folderNames {
			for kind := range plantKinds {
				if n++; n%every != 0 {
					continue
				}
				dir := dirs.Next()
				p := plant(t, dir, tiny, other, byte(base), []byte{byte(name), byte(kind)})
				before := t.Failed()
				p.try(t)
				if t.Failed() && !before {
					t.Fatalf("%s, with %v", folderBases[base].name, slices.Collect(maps.Keys(p.kinds)))
				}
				os.RemoveAll(dir)
				os.Remove(p.elsewhere)
			}
		}
	}
}
