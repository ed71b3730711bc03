package inplace

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"golang.org/x/sys/unix"
)

const fullEnv = "DORMOUSE_INPLACE_FULL"

// On a disk that has no room for a ring, making one is an error, and nothing of it is left. One that was made has all its room: every byte of
// it can be written when the disk is full. It runs in another process, with mounts of its own.
func TestFullDisk(t *testing.T) {
	if dir := os.Getenv(fullEnv); dir != "" {
		onFullDisk(t, dir)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Skipf("SKIPPED, a full disk is untested: %v", err)
	}
	cmd := exec.Command(self, "-test.run=^TestFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), fullEnv+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS):
		t.Skipf("SKIPPED, a full disk is untested: no mount namespace here: %v", err)
	case strings.Contains(string(out), "SKIPPED"):
		t.Skipf("%s", out)
	case err != nil || !strings.Contains(string(out), "--- PASS: TestFullDisk"):
		t.Fatalf("%v\n%s", err, out)
	}
}

func onFullDisk(t *testing.T, dir string) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skipf("SKIPPED, a full disk is untested: no private mounts: %v", err)
	}
	if err := unix.Mount("tiny", dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Skipf("SKIPPED, a full disk is untested: no tmpfs: %v", err)
	}
	name := filepath.Join(dir, "ring")
	large := Shape{Cells: 1000, Layers: 4, RowBytes: 128}
	_, _, err := Open(name, large)
	if !errors.Is(err, vfs.ErrNoSpace) || !strings.Contains(err.Error(), name) {
		t.Fatalf("a ring of %d bytes on a disk of 512 KiB: %v, want vfs.ErrNoSpace and the file's name", large.filled().bytes(), err)
	}
	if names, _ := vfs.OS.List(dir); len(names) != 1 || names[0] != "ring.lock" {
		t.Fatalf("left behind: %v", names)
	}

	r, _ := openRing(t, name, Shape{Cells: 200, Layers: 4, RowBytes: 128})
	rest, err := os.Create(filepath.Join(dir, "rest"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = rest.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	cells, err := r.Claim(200)
	if err != nil {
		t.Fatal(err)
	}
	write(r, keyOf(1), 0, cells)
	x := r.Commit(keyOf(1), 0, cells)
	if err := written(r, x); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	// One of another shape needs its room beside the old one, which stays when there is none.
	if _, _, err := Open(name, Shape{Cells: 250, Layers: 4, RowBytes: 128}); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("another ring on a full disk: %v", err)
	}
	r, got := openRing(t, name, Shape{Cells: 200, Layers: 4, RowBytes: 128})
	if got.Rows != 200 {
		t.Fatalf("%+v", got)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
