package db

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// inChild runs this test binary as another process that does what childStore says.
func inChild(t *testing.T, job, dir string) string {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestChildStore$")
	c.Env = append(os.Environ(), "DORMOUSE_CHILD="+job, "DORMOUSE_CHILD_DIR="+dir)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	return string(out)
}

// TestChildStore is what the other process does.
func TestChildStore(t *testing.T) {
	dir := os.Getenv("DORMOUSE_CHILD_DIR")
	switch os.Getenv("DORMOUSE_CHILD") {
	default:
		t.Skip("SKIPPED: runs in a child process only, which other tests start")
	case "open":
		_, err := Open(ctx, dir, options())
		fmt.Printf("locked %t: %v\n", errors.Is(err, ErrLocked), err)
	case "delete and die":
		s, p := open(t, dir, options()), kv.Tokens(tokens(1, 200)...)
		if _, err := model(t, s, plain()).Delete(ctx, p.Prefix(1)); err != nil {
			t.Fatal(err)
		}
		if err := s.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		fmt.Println("killed now")
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			self.Kill()
		}
		select {}
	case "use":
		s := open(t, dir, options())
		m := model(t, s, plain())
		expect(t, m, kv.Prompt{Tokens: tokens(1, 200)}, 200)
		put(t, m, kv.Prompt{Tokens: tokens(2, 200)})
		if _, err := m.Delete(ctx, kv.Prompt{Tokens: tokens(3, 200)[:1]}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	pid := strconv.Itoa(os.Getpid())
	if _, err := Open(ctx, dir, options()); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), pid) {
		t.Errorf("second open in this process: %v", err)
	}
	if _, err := Verify(ctx, dir, VerifyOptions{}); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), pid) {
		t.Errorf("verify: %v", err)
	}
	if out := inChild(t, "open", dir); !strings.Contains(out, "locked true") || !strings.Contains(out, pid) {
		t.Errorf("open in another process: %s", out)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if out := inChild(t, "open", dir); !strings.Contains(out, "locked false: <nil>") {
		t.Errorf("open in another process after Close: %s", out)
	}
}

// Somebody takes LOCK for a leftover and removes it, while the store is in use. It stays one process's.
func TestLockedWithoutLock(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	for range 2 {
		if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(ctx, dir, VerifyOptions{}); !errors.Is(err, ErrLocked) { // it makes no LOCK
			t.Errorf("verify: %v", err)
		}
		if _, err := Open(ctx, dir, options()); !errors.Is(err, ErrLocked) {
			t.Errorf("second open in this process: %v", err)
		}
		if out := inChild(t, "open", dir); !strings.Contains(out, "locked true") {
			t.Errorf("open in another process: %s", out)
		}
		if err := errors.Join(s.Suspend(ctx), s.Resume(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if out := inChild(t, "open", dir); !strings.Contains(out, "locked false: <nil>") {
		t.Errorf("open in another process after Close: %s", out)
	}
}
