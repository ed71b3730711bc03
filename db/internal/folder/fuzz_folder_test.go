package folder_test

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// folderBases are what a folder holds before anything is planted in it: names of the tiny store's files.
var folderBases = []struct {
	name string
	has  func(name string) bool
}{
	{"nothing", func(string) bool { return false }},
	{"a store", func(string) bool { return true }},
	{"a store without FORMAT", func(n string) bool { return n != storetest.FormatFile }},
	{"wal alone", func(n string) bool { return path.Dir(n) == storetest.LogDir }},
	{"a store without FORMAT and segments", func(n string) bool { return n != storetest.FormatFile && path.Dir(n) != storetest.SegmentsDir }},
	{"segments alone", func(n string) bool { return path.Dir(n) == storetest.SegmentsDir }},
	{"a store without index", func(n string) bool { return n != storetest.IndexFile }},
	{"a store that an fsync failed in", func(string) bool { return true }}, // and an empty unsynced
}

// folderNames are where something is planted.
var folderNames = []string{
	"notes.txt", "index.db.bak", "FORMAT.txt", "part/index.db", "repair.tmp",
	storetest.LockFile, storetest.FormatFile, storetest.FormatFile + ".tmp", storetest.IndexFile, storetest.IndexFile + ".tmp", storetest.BloomFile, storetest.BloomFile + ".tmp", storetest.UnsyncedFile,
	"wal/0000000000000001.wal", "wal/00000000000000ff.wal", "wal/next.wal.tmp", "wal/next1.wal.tmp", "wal/film.wal", "wal/x/y",
	"segments/0000000000000001.seg", "segments/00000000000000ff.seg", "segments/part1.mp4", "segments/00000000000000FF.seg", "segments/x/y",
	"wal", "segments", "sessions/x", "sessions",
}

// otherStore is a store like the tiny one, with another UUID.
func otherStore(t testing.TB) storetest.Image {
	dir := filepath.Join(t.TempDir(), "other")
	s := storetest.Must(storetest.TryOpen(vfs.OS, dir, storetest.TinyOptions()))(t)
	m := storetest.Model(t, s, storetest.TinyModels()[0])
	storetest.Put(t, m, storetest.TinyPrompts()[0])
	storetest.OK(t, s.Checkpoint(t.Context()))
	storetest.Put(t, m, storetest.TinyPrompts()[1])
	storetest.Crash(s)
	return storetest.Must(storetest.ReadDir(dir))(t)
}

// FuzzFolder opens, uses, closes, verifies and repairs folders in which a store, or a part of one, lies among files of others, under foreign
// names and under the store's own: whatever is not the store's is the same afterwards, byte for byte, and where there is no store nothing
// is made.
func FuzzFolder(f *testing.F) {
	tiny, other := storetest.Tiny(f), otherStore(f)
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
	dirs := crashtest.NewDirs(f)
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
	tiny, other := storetest.Tiny(t), otherStore(t)
	dirs := crashtest.NewDirs(t)
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
