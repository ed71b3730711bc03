//go:build unix

package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A link that was planted in the store is not followed, wherever it leads; nor is a pipe waited on.
func TestLinksAreRefused(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	create(t, target, pattern(100)).Close()
	for name, to := range map[string]string{"to a file": target, "to nothing": filepath.Join(dir, "none"), "to a directory": dir} {
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(to, link); err != nil {
			t.Skipf("SKIPPED: no links here: %v", err)
		}
		for _, readOnly := range []bool{true, false} {
			if f, err := OS.Open(link, readOnly); err == nil {
				f.Close()
				t.Errorf("a link %s was opened, read-only = %v", name, readOnly)
			}
			if l, err := AcquireLock(link, readOnly); err == nil {
				l.Release()
				t.Errorf("a link %s was locked, read-only = %v", name, readOnly)
			}
		}
		if _, err := OS.Create(link); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a file was created through a link %s: %v", name, err)
		}
		if info, err := OS.Stat(link); err != nil || info.Regular || info.Dir {
			t.Errorf("a link %s is %+v, %v", name, info, err)
		}
		if err := WriteAtomic(OS, filepath.Dir(link), link, []byte("new"), anyHead); err != nil {
			t.Errorf("replacing a link %s: %v", name, err)
		}
		mustEqual(t, "what replaced the link", content(t, link), []byte("new"))
		tmp := link + ".tmp"
		if err := os.Symlink(target, tmp); err != nil {
			t.Fatal(err)
		}
		if err := WriteAtomic(OS, filepath.Dir(link), link, []byte("newer"), anyHead); err != nil {
			t.Errorf("a link for the temporary file: %v", err)
		}
	}
	mustEqual(t, "the target", content(t, target), pattern(100))
	if _, err := os.Stat(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("something was created behind a link")
	}

	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("SKIPPED the pipe: %v", err)
	}
	done := make(chan error, 2)
	go func() {
		_, err := OS.Open(pipe, true)
		done <- err
		_, err = AcquireLock(pipe, true)
		done <- err
	}()
	for _, what := range []string{"opened", "locked"} {
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("a pipe was %s", what)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("waiting for a pipe's other end to be %s", what)
		}
	}
}
