package memdir

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// disk is where temporary folders were before Main moved them.
var disk string

// Main is a TestMain: it runs the tests of a package with all their temporary folders in memory, where there is such a place. No power
// is cut in them, and on a disk they wait for fsyncs most of the time. With TMPDIR set they are there. Benchmarks stay on the disk. Their
// heaps are tiny: at 100 % the collector would be at work without end.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main for a TestMain that does more: it returns the code to exit with.
func Run(m *testing.M) int {
	unlogged()
	if flag.Lookup("test.bench").Value.String() != "" {
		return m.Run()
	}
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(2 << 30) // what a cleanup frees takes two collections: without a limit the second is ever later
	if os.Getenv("TMPDIR") != "" {
		return m.Run()
	}
	if free, _, err := vfs.OS.Space(shm); err != nil || free < enough {
		return m.Run()
	}
	dir, err := os.MkdirTemp(shm, "dormouse")
	if err != nil {
		return m.Run()
	}
	defer os.RemoveAll(dir)
	disk = os.TempDir()
	os.Setenv("TMPDIR", dir)
	return m.Run()
}

// MainOnDisk is Main for tests that choose themselves where their folders are.
func MainOnDisk(m *testing.M) {
	unlogged()
	os.Exit(m.Run())
}

// unlogged has the go command not write down which files the tests open. They are very many, and it would look all of them up afterwards, to know
// whether it can show this result again: a quarter of the time of go test ./... . So there is nothing that it could show again.
func unlogged() {
	flag.Parse()
	flag.Set("test.testlogfile", "")
}

// Disk makes an empty folder on the disk for the length of a test, though Main runs it: for what a file system in memory does not do.
func Disk(t testing.TB) string {
	t.Helper()
	if disk == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(disk, "dormouse")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
