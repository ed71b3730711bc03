package slotfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A link leads to a number that no other process has by chance: a server in another PID namespace, where this process's number is that of another,
// must find nothing there, since it writes over what it finds.
func TestLinkedNumbersAreHigh(t *testing.T) {
	if !linksWork() {
		t.Skip("SKIPPED: no links to memory here")
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	folder, err := NewFolder("", t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	seen := map[int]bool{}
	for range 8 {
		f, err := folder.Create(10)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		to, err := os.Readlink(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		var pid, fd int
		if _, err := fmt.Sscanf(to, "/proc/%d/fd/%d", &pid, &fd); err != nil || pid != os.Getpid() || fd < int(min(limit.Cur, 1<<16))/2 || seen[fd] {
			t.Errorf("a link to %s, of at most %d files: %v", to, limit.Cur, err)
		}
		seen[fd] = true
	}
}

// A folder is made in the first place that takes one, and a place that is named is the only one.
func TestSlotFolderPlaces(t *testing.T) {
	in, store := t.TempDir(), filepath.Join(t.TempDir(), "store")
	f, err := NewFolder("", in, store)
	if err != nil || filepath.Dir(f.Path) != in {
		t.Fatal(f, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(in); err != nil || len(list) > 0 {
		t.Error(list, err)
	}
	if _, err := NewFolder("", filepath.Join(in, "missing"), store); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Error(err)
	}
	for _, place := range memoryPlaces() {
		if !inMemory(place) {
			t.Errorf("%s is not in memory", place)
		}
	}
	if got := unescape(`/a\040b\134c`); got != `/a b\c` {
		t.Error(got)
	}
}
