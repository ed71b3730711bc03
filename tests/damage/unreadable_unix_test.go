//go:build unix

package damage

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/memdir"
)

// nobody is the user as whom a test that was started by root runs where permissions matter.
const nobody = 65534

// asNobody runs the calling test once more as another user, if root runs it, and reports that it did.
func asNobody(t *testing.T) bool {
	if os.Geteuid() != 0 {
		return false
	}
	dir, err := os.MkdirTemp("", "damage")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	home, exe := filepath.Join(dir, "home"), filepath.Join(dir, "test")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, nobody, nobody); err != nil {
		t.Skipf("SKIPPED: there is no other user to be here: %v", err)
	}
	src, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.OpenFile(exe, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(dst, src)
	if cerr := dst.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
	c := exec.Command(exe, "-test.run=^"+t.Name()+"$", "-test.v")
	c.Dir = home
	c.Env = append(os.Environ(), "TMPDIR="+home, "HOME="+home)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := c.CombinedOutput()
	if _, ran := err.(*exec.ExitError); err != nil && !ran {
		t.Skipf("SKIPPED: no process of another user can be started here: %v", err)
	}
	t.Logf("as user %d:\n%s", nobody, out)
	if err != nil {
		t.Error(err)
	}
	return true
}

// A file that may not be read, or not be written, is one that the store does without, or says so.
func TestUnreadableFiles(t *testing.T) {
	if asNobody(t) {
		return
	}
	bases := build(t, 1)
	dir := filepath.Join(memdir.Dir(t), "store")
	tried := 0
	for _, x := range bases {
		for _, file := range x.files.names() {
			for _, mode := range []os.FileMode{0, 0o400, 0o200} {
				s := stranger{"of mode " + mode.String(), func(p string) error {
					if err := os.WriteFile(p, x.files[file], 0o600); err != nil {
						return err
					}
					return os.Chmod(p, mode)
				}, true}
				tried++
				watch(t, x.name+" "+file+" "+s.name, func() { t.Log(replaced(t, x, file, s, dir)) })
				os.Chmod(filepath.Join(dir, filepath.FromSlash(file)), 0o600)
			}
		}
	}
	t.Logf("%d files that may not be read or written", tried)
}
