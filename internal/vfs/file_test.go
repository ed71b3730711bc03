package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

// A file beside a slice of bytes: writing, truncating, allocating and punching do to both the same, and all ways of reading
// see it.
func TestFileIsLikeBytes(t *testing.T) {
	const most = 64 << 10
	dir := t.TempDir()
	files := 0
	rapid.Check(t, func(t *rapid.T) {
		files++
		f, err := OS.Create(filepath.Join(dir, fmt.Sprint(files)))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var model []byte
		grow := func(n int) { model = append(model, make([]byte, max(0, n-len(model)))...) }
		place := rapid.OneOf(rapid.IntRange(0, most), rapid.SampledFrom([]int{0, 1, 4095, 4096, 4097, 8192, most}))
		length := rapid.OneOf(rapid.IntRange(0, most/4), rapid.SampledFrom([]int{0, 1, 4096, 8192}))
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				off, b := place.Draw(t, "at"), pattern(length.Draw(t, "bytes"))
				_, err := f.WriteAt(b, int64(off))
				must(err)
				if len(b) > 0 {
					grow(off + len(b))
					copy(model[off:], b)
				}
			},
			"truncate": func(t *rapid.T) {
				n := place.Draw(t, "to")
				must(f.Truncate(int64(n)))
				grow(n)
				model = model[:n:n]
			},
			"allocate": func(t *rapid.T) {
				off, n := place.Draw(t, "at"), length.Draw(t, "bytes")
				must(f.Allocate(int64(off), int64(n)))
				if n > 0 {
					grow(off + n)
				}
			},
			"punch": func(t *rapid.T) {
				off, n := place.Draw(t, "at"), length.Draw(t, "bytes")
				if rapid.Bool().Draw(t, "where holes are missing") {
					must(writeZeros(f.(*osFile).File, int64(off), int64(n)))
				} else {
					_, err := f.Punch(int64(off), int64(n))
					must(err)
				}
				clear(model[min(off, len(model)):min(off+n, len(model))])
			},
			"": func(t *rapid.T) {
				info, err := f.Stat()
				must(err)
				if info.Size != int64(len(model)) {
					t.Fatalf("the file has %d bytes, want %d", info.Size, len(model))
				}
				got := make([]byte, len(model)+1)
				n, err := f.ReadAt(got, 0)
				if n != len(model) || err != io.EOF || !bytes.Equal(got[:n], model) {
					t.Fatalf("reads %d bytes, want %d, or others; %v", n, len(model), err)
				}
				if len(model) > 0 {
					m, err := f.Map(int64(len(model)))
					must(err)
					defer m.Close()
					if !bytes.Equal(m.Bytes(), model) {
						t.Fatal("the map shows other bytes")
					}
				}
			},
		})
	})
}

// A map from before shows the zeros too. (Whether space comes back is not asked: tmpfs keeps pages that were just seen.)
func TestPunchUnderAMap(t *testing.T) {
	const size = 64 << 10
	f := create(t, filepath.Join(t.TempDir(), "f"), pattern(size))
	m, err := f.Map(size)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	mustEqual(t, "map", m.Bytes(), pattern(size))
	want := pattern(size)
	for _, off := range []int64{100, 8192, size - 50} { // in the middle of pages, whole pages, beyond the end
		const n = 12345
		if _, err := f.Punch(off, n); err != nil {
			t.Fatal(err)
		}
		clear(want[off:min(off+n, size)])
		mustEqual(t, "map", m.Bytes(), want)
	}
}

// Where holes are missing, zeros are written, more than fit one write too.
func TestWriteZeros(t *testing.T) {
	const size = 5 << 19
	f := create(t, filepath.Join(t.TempDir(), "f"), pattern(size))
	if err := writeZeros(f.(*osFile).File, 1000, size-2000); err != nil {
		t.Fatal(err)
	}
	want := pattern(size)
	clear(want[1000 : size-1000])
	mustEqual(t, "content", content(t, f.Name()), want)
}

// Allocated space is there: it counts as occupied although nothing was written.
func TestAllocateReserves(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "f"), pattern(10))
	if err := f.Allocate(0, 1<<20); err != nil {
		t.Fatal(err)
	}
	info := statOf(t, f)
	if info.Size != 1<<20 {
		t.Errorf("the file has %d bytes", info.Size)
	}
	if info.Allocated < 1<<20 {
		t.Logf("this system does not reserve: %+v", info)
	}
	want := append(pattern(10), make([]byte, 1<<20-10)...)
	mustEqual(t, "content", content(t, f.Name()), want)
	if err := f.Allocate(100, -5); err != nil {
		t.Errorf("less than nothing: %v", err)
	}
}

// A map shows what is written after it was made; hints change nothing, whatever they name.
func TestMap(t *testing.T) {
	const size = 3*4096 + 100
	f := create(t, filepath.Join(t.TempDir(), "f"), pattern(size))
	for _, bad := range []int64{0, -1, -1 << 62} {
		if m, err := f.Map(bad); err == nil {
			m.Close()
			t.Errorf("%d bytes were mapped", bad)
		}
	}
	m, err := f.Map(size)
	if err != nil {
		t.Fatal(err)
	}
	want := pattern(size)
	for _, off := range []int64{-4096, -1, 0, 1, 4095, 4096, size - 1, size, size + 9000, 1 << 62} {
		for _, n := range []int64{-1, 0, 1, 4096, size, 1 << 62} {
			m.WillNeed(off, n)
			m.DontNeed(off, n)
		}
	}
	mustEqual(t, "map after hints", m.Bytes(), want)
	copy(want[5000:], "written later")
	if _, err := f.WriteAt([]byte("written later"), 5000); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "map after a write", m.Bytes(), want)
	f.Close()
	mustEqual(t, "map of a closed file", m.Bytes(), want)
	for range 2 {
		if err := m.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	}
	if len(m.Bytes()) != 0 {
		t.Error("a closed map still has bytes")
	}
	m.WillNeed(0, size)
	m.DontNeed(0, size)
}

// ReadAll reads all or fails, and never allocates more than its limit.
func TestReadAll(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []int{0, 1, 5000} {
		name := filepath.Join(dir, fmt.Sprint(n))
		create(t, name, pattern(n)).Close()
		b, err := ReadAll(OS, name, int64(n))
		if err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		mustEqual(t, "content", b, pattern(n))
		var large *TooLargeError
		if _, err := ReadAll(OS, name, int64(n)-1); !errors.As(err, &large) || large.Size != int64(n) || large.Limit != int64(n)-1 || large.Name != name {
			t.Errorf("one byte too many of %d: %v", n, err)
		} else if s := err.Error(); !bytes.Contains([]byte(s), fmt.Append(nil, n, " bytes")) {
			t.Error(s)
		}
		if b, err := ReadAll(eagerEOF{OS}, name, 5000); err != nil || len(b) != n {
			t.Errorf("%d bytes, the last with io.EOF: %v", n, err)
		}
	}
	if _, err := ReadAll(OS, filepath.Join(dir, "none"), 10); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// eagerEOF is a file system whose ReadAt returns io.EOF together with the last byte, as io.ReaderAt allows.
type eagerEOF struct{ FS }

func (e eagerEOF) Open(name string, readOnly bool) (File, error) {
	f, err := e.FS.Open(name, readOnly)
	return eagerFile{f}, err
}

type eagerFile struct{ File }

func (f eagerFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	if info, serr := f.Stat(); err == nil && serr == nil && off+int64(n) == info.Size {
		err = io.EOF
	}
	return n, err
}
