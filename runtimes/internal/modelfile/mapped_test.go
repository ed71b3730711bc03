package modelfile

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// What a stamp tells of a file that changed: its contents, its status alone, or that it is another file.
func TestStamps(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: no inodes")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "m-00001-of-00002.gguf")
	second := filepath.Join(dir, "m-00002-of-00002.gguf")
	for _, p := range []string{path, second} {
		if err := os.WriteFile(p, []byte("one"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	of := func() Stamps {
		t.Helper()
		s, err := StampsOf(path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	was := of()
	for _, x := range []struct {
		name string
		do   func() error
		want Change
	}{
		{"nothing", func() error { return nil }, Unchanged},
		{"rights of the second part", func() error { return os.Chmod(second, 0o600) }, Touched},
		{"another name", func() error { return os.Link(path, path+".link") }, Touched},
		{"times", func() error { later := time.Now().Add(time.Hour); return os.Chtimes(second, later, later) }, Rewritten},
		{"contents", func() error { return os.WriteFile(path, []byte("three"), 0o644) }, Rewritten},
		{"another file", func() error {
			if err := os.WriteFile(path+".new", []byte("three"), 0o644); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}, Another},
	} {
		time.Sleep(20 * time.Millisecond) // the clock of file systems is coarse
		if err := x.do(); err != nil {
			t.Fatal(err)
		}
		now := of()
		if got := now.Since(was); got != x.want {
			t.Errorf("%s: %v is %v: %d, want %d", x.name, was, now, got, x.want)
		}
		was = now
	}
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	if s, err := StampsOf(path); err == nil {
		t.Errorf("a part is missing: %v", s)
	}
	if MappedAs(path).Still(nil) {
		t.Error("a file that nobody has mapped")
	}
}
