package vfs

import (
	"errors"
	"path/filepath"
	"runtime"
	"testing"
)

// A hole of whole blocks gives their space back, of the open file and by its name, and takes no byte beside it. Where none can be punched,
// the test says so.
func TestPunchFrees(t *testing.T) {
	dir := t.TempDir()
	_, blockBytes, err := OS.Space(dir)
	if err != nil {
		t.Fatal(err)
	}
	block := int64(blockBytes)
	size := max(1<<20, 64*block)
	f := create(t, filepath.Join(dir, "f"), pattern(int(size)))
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	before := statOf(t, f)
	want := pattern(int(size))
	punched, freed := int64(0), true
	for _, x := range []struct{ off, n int64 }{{4 * block, 8 * block}, {16 * block, block}, {size - 8*block, 16 * block}} { // the last goes on behind the end
		all, err := f.Punch(x.off, x.n)
		if err != nil {
			t.Fatal(err)
		}
		end := min(x.off+x.n, size)
		clear(want[x.off:end])
		punched, freed = punched+end-x.off, freed && all
	}
	mustEqual(t, "content", content(t, f.Name()), want)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	after := statOf(t, f)
	if byName, err := OS.Stat(f.Name()); err != nil || byName != after {
		t.Errorf("%+v by name, %+v of the open file; %v", byName, after, err)
	}
	if freed, err := f.Punch(0, 0); !freed || err != nil {
		t.Errorf("punching nothing: %v, %v", freed, err)
	}
	if _, err := f.Punch(-4096, 4096+10); err == nil {
		t.Error("punching before the beginning is fine")
	}
	mustEqual(t, "content", content(t, f.Name())[10:], want[10:])
	if !freed {
		t.Skipf("SKIPPED: THE FILE SYSTEM OF %s, ON %s, PUNCHES NO HOLES: only the zeros were tested, not that space comes back", dir, runtime.GOOS)
	}
	if after.Size != size || before.Allocated-after.Allocated < punched {
		t.Errorf("%d bytes punched: %+v before, %+v after", punched, before, after)
	}
}

// Whole blocks become holes, and the rest zeros, where a system has holes of whole blocks alone; what lies beside the range, and the length
// of the file, stay. All becomes zeros where there are no holes, or the range has no whole block. It says that the space is back only if all is.
func TestPunchBlocks(t *testing.T) {
	const block = 4096
	const size = 10*block + 100
	errSick := errors.New("the disk is sick")
	for _, x := range []struct {
		off, n, from, to int64
		fails            error
		freed            bool
	}{
		{off: 2 * block, n: 3 * block, from: 2 * block, to: 5 * block, freed: true},
		{off: 2*block + 1, n: 3 * block, from: 3 * block, to: 5 * block},
		{off: 2 * block, n: 3*block + 1, from: 2 * block, to: 5 * block},
		{off: 2*block - 1, n: 3*block + 2, from: 2 * block, to: 5 * block},
		{off: 2*block + 1, n: block}, // no whole block
		{off: 9 * block, n: 9 * block, from: 9 * block, to: 10 * block},
		{off: size, n: block, freed: true}, // nothing is there
		{off: 2 * block, n: 3 * block, from: 2 * block, to: 5 * block, fails: errNoHoles},
		{off: 2*block + 7, n: 3 * block, from: 3 * block, to: 5 * block, fails: errNoHoles},
		{off: 2 * block, n: 3 * block, from: 2 * block, to: 5 * block, fails: errSick},
	} {
		f := create(t, filepath.Join(t.TempDir(), "f"), pattern(size)).(*osFile)
		want := pattern(size)
		var from, to int64
		freed, err := punchBlocks(f.File, x.off, x.n, block, func(a, b int64) error {
			from, to = a, b
			if x.fails == nil {
				_, err := f.WriteAt(make([]byte, b-a), a)
				return err
			}
			return x.fails
		})
		if x.fails != errSick {
			clear(want[min(x.off, size):min(x.off+x.n, size)])
		}
		if freed != x.freed || from != x.from || to != x.to || (err != nil) != (x.fails == errSick) {
			t.Errorf("%+v: freed %t, a hole of [%d, %d), %v", x, freed, from, to, err)
		}
		mustEqual(t, "content", content(t, f.Name()), want)
	}
}
