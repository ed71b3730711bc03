package llamaserver

import (
	"bytes"
	"os"
	"testing"
)

// The memory of a file is used again, whatever its length, and no more once somebody has removed its name.
func TestSpareSlotFile(t *testing.T) {
	folder, err := newSlotFolder("")
	if err != nil {
		t.Fatal(err)
	}
	defer folder.close()
	make := func(size int64) *slotFile {
		t.Helper()
		f, err := folder.create(size)
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.bytes() {
			f.bytes()[i] = byte(size)
		}
		got, err := os.ReadFile(f.path) // as the server does
		if err != nil || int64(len(got)) != size || !bytes.Equal(got, f.bytes()) {
			t.Fatalf("a file of %d bytes has %d (%v)", size, len(got), err)
		}
		return f
	}
	first := make(100_001)
	folder.done(first)
	for _, size := range []int64{5, 70_000, 200_003, 100_002} {
		f := make(size)
		if f.name != first.name {
			t.Errorf("%d bytes are in a new file", size)
		}
		folder.done(f)
	}
	a, b := make(10), make(20)
	folder.done(b)
	folder.done(a)
	if _, err := os.Lstat(a.path); err == nil {
		t.Error("both of two files are kept")
	}
	os.Remove(b.path)
	if c := make(30); c.name == b.name {
		t.Error("a file without a name is used")
	} else {
		folder.done(c)
	}
	folder.spare.empty()
	if left, _ := os.ReadDir(folder.path); len(left) > 0 {
		t.Errorf("%d files are left", len(left))
	}
	f := make(40)
	folder.spare.drop()
	folder.done(f)
	if left, _ := os.ReadDir(folder.path); len(left) > 0 {
		t.Errorf("%d files are left at the end", len(left))
	}
}
