package modelfile

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// What a stamp tells of a file that changed: its contents, its status alone, or that it is another file.
func TestStamp(t *testing.T) {
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
	of := func() Stamp {
		t.Helper()
		s, err := StampOf(path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	was := of()
	for _, x := range []struct {
		name               string
		do                 func() error
		same, status, file bool
	}{
		{"nothing", func() error { return nil }, true, true, true},
		{"rights of the second part", func() error { return os.Chmod(second, 0o600) }, false, true, true},
		{"another name", func() error { return os.Link(path, path+".link") }, false, true, true},
		{"times", func() error { later := time.Now().Add(time.Hour); return os.Chtimes(second, later, later) }, false, false, true},
		{"contents", func() error { return os.WriteFile(path, []byte("three"), 0o644) }, false, false, true},
		{"another file", func() error {
			if err := os.WriteFile(path+".new", []byte("three"), 0o644); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}, false, false, false},
	} {
		time.Sleep(20 * time.Millisecond) // the clock of file systems is coarse
		if err := x.do(); err != nil {
			t.Fatal(err)
		}
		now := of()
		if (was == now) != x.same || was.OnlyStatus(now) != x.status || was.SameFiles(now) != x.file {
			t.Errorf("%s: %s is %s: same %v, only status %v, same files %v", x.name, was, now, was == now, was.OnlyStatus(now), was.SameFiles(now))
		}
		was = now
	}
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	if s, err := StampOf(path); err == nil {
		t.Errorf("a part is missing: %s", s)
	}
	if MappedAs(path).Still("") {
		t.Error("a file that nobody has mapped")
	}
}
