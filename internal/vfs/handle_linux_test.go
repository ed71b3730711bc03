package vfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The limit of open files is a process's, so these tests are processes of their own.
const handlesEnv = "DORMOUSE_TEST_HANDLES"

func child(t *testing.T, limit uint64) (here bool) {
	t.Helper()
	if os.Getenv(handlesEnv) != "" {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			t.Fatal(err)
		}
		return true
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), handlesEnv+"=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// countFS counts what is open, and which files were closed unsynced.
type countFS struct {
	FS
	open, most int
	fails      error
}

type countFile struct {
	File
	c     *countFS
	dirty bool
}

func (c *countFS) count(f File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	c.open++
	c.most = max(c.most, c.open)
	return &countFile{File: f, c: c}, nil
}
func (c *countFS) Create(name string) (File, error) { return c.count(c.FS.Create(name)) }
func (c *countFS) Open(name string, readOnly bool) (File, error) {
	return c.count(c.FS.Open(name, readOnly))
}

func (f *countFile) WriteAt(b []byte, off int64) (int, error) {
	f.dirty = true
	return f.File.WriteAt(b, off)
}

func (f *countFile) Sync() error {
	if f.c.fails != nil {
		return f.c.fails
	}
	f.dirty = false
	return f.File.Sync()
}

func (f *countFile) Close() error {
	f.c.open--
	if f.dirty && f.c.fails == nil {
		panic("closed with unsynced bytes")
	}
	return f.File.Close()
}

// A quarter of the limit is open at most, and what is in use; what was written is synced before its file is closed.
func TestHandlesAreBounded(t *testing.T) {
	if !child(t, 64) {
		return
	}
	if Handles() != 16 {
		t.Fatal(Handles())
	}
	c := &countFS{FS: OS}
	dir := t.TempDir()
	never := func(err error) { t.Error(err) }
	var all []*Handle
	for i := range 100 {
		h, err := CreateHandle(c, filepath.Join(dir, fmt.Sprint(i)), never)
		if err != nil {
			t.Fatal(err)
		}
		h.WriteAt([]byte(fmt.Sprint("file", i)), 0)
		h.Release()
		all = append(all, h)
	}
	if c.most > 17 {
		t.Errorf("%d were open", c.most)
	}
	for _, h := range all[:30] {
		if err := h.Hold(); err != nil {
			t.Fatal(err)
		}
	}
	for i, h := range all {
		if err := h.Hold(); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 16)
		n, _ := h.ReadAt(b, 0)
		if want := fmt.Sprint("file", i); string(b[:n]) != want {
			t.Errorf("%q, expected %q", b[:n], want)
		}
		h.Release()
	}
	if c.open < 30 || c.most > 30+17 {
		t.Errorf("%d are open of 30 that are held, %d were", c.open, c.most)
	}
	for _, h := range all[:30] {
		h.Release()
	}
	if c.open > 16 {
		t.Errorf("%d are open", c.open)
	}
	for _, h := range all {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	if c.open != 0 || pool.open.Load() != 0 {
		t.Errorf("%d are open, %d counted", c.open, pool.open.Load())
	}
}

// An fsync that fails between two uses of a file is told at once, and again by its next Sync.
func TestHandleTellsOfAFailedSync(t *testing.T) {
	if !child(t, 64) {
		return
	}
	c := &countFS{FS: OS}
	dir := t.TempDir()
	var told []error
	create := func(name string) *Handle {
		h, err := CreateHandle(c, filepath.Join(dir, name), func(err error) { told = append(told, err) })
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	bad := create("bad")
	bad.WriteAt([]byte("lost"), 0)
	c.fails = syscall.EIO
	bad.Release()
	for i := range 20 {
		create(fmt.Sprint(i)).Release()
	}
	c.fails = nil
	if len(told) != 1 || !errors.Is(told[0], syscall.EIO) {
		t.Fatal(told)
	}
	if err := bad.Hold(); err != nil {
		t.Fatal(err)
	}
	if err := bad.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("Sync: %v", err)
	}
}

// Where somebody else has all handles of the process, those of files that are not in use are given up, and in the end the error says which file
// could not be opened, and the limit.
func TestHandlesAreGivenUp(t *testing.T) {
	if !child(t, 64) {
		return
	}
	dir := t.TempDir()
	var all []*Handle
	for i := range 3 {
		h, err := CreateHandle(OS, filepath.Join(dir, fmt.Sprint(i)), func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		h.WriteAt([]byte{1}, 0) // dirty
		h.Release()
		all = append(all, h)
	}
	var others []*os.File
	defer func() {
		for _, f := range others {
			f.Close()
		}
	}()
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		others = append(others, f)
	}
	for i := range 3 {
		f, err := OS.Open(filepath.Join(dir, fmt.Sprint(i)), true)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		defer f.Close()
	}
	name := filepath.Join(dir, "0")
	for what, err := range map[string]error{"open": second(OS.Open(name, true)), "hold": all[0].Hold(), "list": second(OS.List(dir)), "sync": OS.SyncDir(dir)} {
		if !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "limit of this process is 64") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
