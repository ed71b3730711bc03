package engine_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
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
		_, err := db.Open(t.Context(), dir, storetest.Options())
		fmt.Printf("locked %t: %v\n", errors.Is(err, db.ErrLocked), err)
	case "use":
		s := storetest.Open(t, dir, storetest.Options())
		m := storetest.Model(t, s, crashtest.Plain())
		storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 200)}, 200)
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 200)})
		storetest.Must(m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(3, 200)[:1]}))(t)
		storetest.OK(t, s.Close())
	}
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	pid := strconv.Itoa(os.Getpid())
	if _, err := db.Open(t.Context(), dir, storetest.Options()); !errors.Is(err, db.ErrLocked) || !strings.Contains(err.Error(), pid) {
		t.Errorf("second open in this process: %v", err)
	}
	if _, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{}); !errors.Is(err, db.ErrLocked) || !strings.Contains(err.Error(), pid) {
		t.Errorf("verify: %v", err)
	}
	if out := inChild(t, "open", dir); !strings.Contains(out, "locked true") || !strings.Contains(out, pid) {
		t.Errorf("open in another process: %s", out)
	}
	storetest.OK(t, s.Close())
	if out := inChild(t, "open", dir); !strings.Contains(out, "locked false: <nil>") {
		t.Errorf("open in another process after Close: %s", out)
	}
}

// Somebody takes LOCK for a leftover and removes it, while the store is in use. It stays one process's.
func TestLockedWithoutLock(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	for range 2 {
		storetest.OK(t, os.Remove(filepath.Join(dir, storetest.LockFile)))
		if _, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{}); !errors.Is(err, db.ErrLocked) { // it makes no LOCK
			t.Errorf("verify: %v", err)
		}
		if _, err := db.Open(t.Context(), dir, storetest.Options()); !errors.Is(err, db.ErrLocked) {
			t.Errorf("second open in this process: %v", err)
		}
		if out := inChild(t, "open", dir); !strings.Contains(out, "locked true") {
			t.Errorf("open in another process: %s", out)
		}
		storetest.OK(t, errors.Join(s.Suspend(t.Context()), s.Resume(t.Context())))
	}
	storetest.OK(t, s.Close())
	if out := inChild(t, "open", dir); !strings.Contains(out, "locked false: <nil>") {
		t.Errorf("open in another process after Close: %s", out)
	}
}
