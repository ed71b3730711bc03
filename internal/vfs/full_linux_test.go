package vfs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// tinyEnv names the directory over which the other process mounts its tiny file system.
const tinyEnv = "DORMOUSE_VFS_TEST_TINY"

const tinySize = 256 << 10

// On a full file system everything says ErrNoSpace, and no byte is lost. It runs in another process, with a mount namespace
// of its own, so that nothing of the tiny file system can stay behind.
func TestFullDisk(t *testing.T) {
	if dir := os.Getenv(tinyEnv); dir != "" {
		inTinyFileSystem(t, dir)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Skipf("SKIPPED, a full disk is untested: %v", err)
	}
	cmd := exec.Command(self, "-test.run=^TestFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), tinyEnv+"="+t.TempDir())
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

func inTinyFileSystem(t *testing.T, dir string) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skipf("SKIPPED, a full disk is untested: no private mounts: %v", err)
	}
	fresh := func(t *testing.T) string {
		if err := unix.Mount("tiny", dir, "tmpfs", 0, "size=256k"); err != nil {
			t.Skipf("SKIPPED, a full disk is untested: no tmpfs: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		return dir
	}
	t.Run("allocate", func(t *testing.T) { fullAllocate(t, fresh(t)) })
	t.Run("reserved", func(t *testing.T) { fullReserved(t, fresh(t)) })
	t.Run("write", func(t *testing.T) { fullWrite(t, fresh(t)) })
	t.Run("atomic", func(t *testing.T) { fullAtomic(t, fresh(t)) })
	t.Run("punch", func(t *testing.T) { fullPunch(t, fresh(t)) })
	t.Run("lock", func(t *testing.T) { fullLock(t, fresh(t)) })
}

// fill writes to a file of its own until nothing more fits.
func fill(t *testing.T, dir string) File {
	t.Helper()
	f := create(t, filepath.Join(dir, "fill"), nil)
	for off := int64(0); ; off += 4096 {
		if _, err := f.WriteAt(pattern(4096), off); err != nil {
			if !errors.Is(err, ErrNoSpace) || !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("writing to a full disk: %v", err)
			}
			return f
		}
		if off > tinySize {
			t.Fatal("the file system is not tiny")
		}
	}
}

// An allocation that does not fit says so and changes nothing: neither what was written nor the file's length.
func fullAllocate(t *testing.T, dir string) {
	f := create(t, filepath.Join(dir, "f"), pattern(10000))
	err := f.Allocate(8192, 1<<20)
	if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), f.Name()) {
		t.Errorf("allocating four times the file system: %v", err)
	}
	mustEqual(t, "content", content(t, f.Name()), pattern(10000))
	if err := f.Allocate(8192, 64<<10); err != nil {
		t.Errorf("what fits: %v", err)
	}
	if free, _, err := OS.Space(dir); err != nil || free == 0 || free > tinySize-64<<10 {
		t.Errorf("%d bytes are free, %v", free, err)
	}
}

// Space that was reserved can be written to, though the disk is full by then.
func fullReserved(t *testing.T, dir string) {
	f := create(t, filepath.Join(dir, "f"), nil)
	if err := f.Allocate(0, 64<<10); err != nil {
		t.Fatal(err)
	}
	fill(t, dir)
	if free, _, err := OS.Space(dir); err != nil || free != 0 {
		t.Fatalf("%d bytes are free, %v", free, err)
	}
	if _, err := f.WriteAt(pattern(64<<10), 0); err != nil {
		t.Fatalf("writing to reserved space: %v", err)
	}
	mustEqual(t, "content", content(t, f.Name()), pattern(64<<10))
}

// A write that does not fit says ErrNoSpace; what fitted of it can be cut off, and all else is as before.
func fullWrite(t *testing.T, dir string) {
	f := create(t, filepath.Join(dir, "f"), pattern(10000))
	n, err := f.WriteAt(pattern(tinySize), 10000)
	if !errors.Is(err, ErrNoSpace) || n >= tinySize {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if err := f.Truncate(10000); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "content", content(t, f.Name()), pattern(10000))
}

// WriteAtomic on a full disk leaves the old file and nothing beside it.
func fullAtomic(t *testing.T, dir string) {
	name := filepath.Join(dir, "f")
	create(t, name, pattern(5000)).Close()
	fill(t, dir)
	if err := WriteAtomic(OS, dir, name, pattern(9000), anyHead); !errors.Is(err, ErrNoSpace) {
		t.Errorf("writing to a full disk: %v", err)
	}
	mustEqual(t, "content", content(t, name), pattern(5000))
	if _, err := OS.Stat(name + ".tmp"); err == nil {
		t.Error("the temporary file was left")
	}
}

// Punching needs no space and makes some.
func fullPunch(t *testing.T, dir string) {
	f := create(t, filepath.Join(dir, "f"), pattern(128<<10))
	fill(t, dir)
	if freed, err := f.Punch(0, 64<<10); !freed || err != nil {
		t.Fatalf("freed = %v, %v", freed, err)
	}
	g := create(t, filepath.Join(dir, "g"), nil)
	if err := g.Allocate(0, 64<<10); err != nil {
		t.Errorf("allocating what was punched: %v", err)
	}
	want := pattern(128 << 10)
	clear(want[:64<<10])
	mustEqual(t, "content", content(t, f.Name()), want)
}

// A store on a full disk can be opened, so that room can be made: its lock is taken, though it cannot name its holder.
func fullLock(t *testing.T, dir string) {
	name := filepath.Join(dir, "LOCK")
	create(t, name, nil).Close()
	fill(t, dir)
	l := acquire(t, name, false)
	refused(t, name, os.Getpid(), "already open")
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}
