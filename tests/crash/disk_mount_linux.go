package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// diskBytes is the size of an image. It is sparse. xfs wants 300 MiB at least.
const diskBytes = 512 << 20

// fileSystem is one that power is cut under.
type fileSystem struct {
	name string
	mkfs []string
	// mount holds option strings. A store takes one of them, since they decide what the kernel writes when.
	mount []string
}

var fileSystems = []fileSystem{
	{
		"ext4", []string{"mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"},
		[]string{"", "commit=1", "noauto_da_alloc,commit=1", "data=writeback,noauto_da_alloc", "data=journal"},
	},
	{"xfs", []string{"mkfs.xfs", "-q", "-f", "-K", "-s", "size=4096"}, []string{"", "logbsize=256k"}},
	{"btrfs", []string{"mkfs.btrfs", "-q", "-f", "-K"}, []string{"", "commit=1", "notreelog", "flushoncommit"}},
}

// machine is a directory with one image and what is mounted of it. Close undoes all of it. It lives in a mount namespace of
// its own (enterNamespace), so that nothing is left of its mounts even after a SIGKILL.
type machine struct {
	fs    fileSystem
	dir   string
	disk  *remoteDisk // nil: the power is off
	mnt   string      // empty: nothing is mounted
	boots *bootID
}

// newMachine makes a file system on a new image below dir.
func newMachine(ctx context.Context, fs fileSystem, dir string, boots *bootID) (*machine, error) {
	dir, err := os.MkdirTemp(dir, "power-"+fs.name+"-")
	if err != nil {
		return nil, err
	}
	m := &machine{fs: fs, dir: dir, boots: boots}
	image, err := os.OpenFile(m.image(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if err := errors.Join(image.Truncate(diskBytes), image.Close()); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	args := append(fs.mkfs[1:len(fs.mkfs):len(fs.mkfs)], m.image())
	if out, err := exec.CommandContext(ctx, fs.mkfs[0], args...).CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w: %s", strings.Join(fs.mkfs, " "), err, out), m.Close())
	}
	return m, nil
}

func (m *machine) image() string { return filepath.Join(m.dir, "image") }

// On boots: the disk gets power, and its file system is mounted and replays its journal. options are the mount's.
func (m *machine) On(options string) (dir string, err error) {
	if m.disk != nil {
		return "", errors.New("the power is on")
	}
	if err := m.boots.Next(); err != nil {
		return "", err
	}
	return m.plug(options)
}

// plug is On of the disk alone, in the same boot: a volume that went comes back.
func (m *machine) plug(options string) (dir string, err error) {
	if m.disk, err = startDisk(m.image(), filepath.Join(m.dir, "disk")); err != nil {
		return "", err
	}
	loop, err := attach(m.disk.path)
	if err != nil {
		return "", err
	}
	defer loop.Close() // it detaches itself when the file system lets go of it
	mnt := filepath.Join(m.dir, "mnt")
	if err := os.MkdirAll(mnt, 0o700); err != nil {
		return "", err
	}
	if err := unix.Mount(loop.Name(), mnt, m.fs.name, unix.MS_NOATIME, options); err != nil {
		return "", fmt.Errorf("mount -t %s -o %q %s: %w", m.fs.name, options, loop.Name(), err)
	}
	m.mnt = mnt
	return mnt, nil
}

func (m *machine) resume() error {
	if m.disk == nil {
		return nil
	}
	return m.disk.Resume()
}

// keep copies the image as a cut left it, before anything is mounted from it: should the check find something, it is
// where to look.
func (m *machine) keep() error {
	if m.disk != nil {
		return errors.New("the power is on")
	}
	return copyHoles(m.image(), filepath.Join(m.dir, "image-after-cut"))
}

// copyHoles copies what of a sparse file is not a hole.
func copyHoles(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := out.Truncate(diskBytes); err != nil {
		return err
	}
	for at := int64(0); ; {
		start, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		if at, err = unix.Seek(int(in.Fd()), start, unix.SEEK_HOLE); err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(out, start), io.NewSectionReader(in, start, at-start)); err != nil {
			return err
		}
	}
}

// Off unmounts the file system and takes the disk away. After a cut, what the kernel still writes goes nowhere.
func (m *machine) Off() error {
	if m.disk == nil {
		return nil
	}
	err := m.disk.Resume()
	if m.mnt != "" {
		err = errors.Join(err, unmount(m.mnt))
		m.mnt = ""
	}
	err = errors.Join(err, m.disk.Close())
	m.disk = nil
	return err
}

// Close undoes everything.
func (m *machine) Close() error { return errors.Join(m.Off(), os.RemoveAll(m.dir)) }

// attach puts a loop device on the file at path. It is detached when its last user closes it.
func attach(path string) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	// Not os.Open: the runtime would ask the disk's process whether the file can be polled, in a system call that it
	// thinks short.
	back, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(back)
	for range 20 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("no free loop device: %w", err)
		}
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &unix.LoopConfig{
			Fd: uint32(back), Size: diskBlock, Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR},
		})
		if err == nil {
			return loop, nil
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) { // somebody else was faster
			return nil, fmt.Errorf("loop device %d on %s: %w", n, path, err)
		}
	}
	return nil, errors.New("others took every loop device that was free")
}
