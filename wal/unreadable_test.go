package wal

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// sickFS is a file system with one block in each file that cannot be read; a block of -1: nothing can be.
type sickFS struct {
	vfs.FS
	block int64
	err   error
}

type sickFile struct {
	vfs.File
	fs sickFS
}

func (s sickFS) Open(name string, readOnly bool) (vfs.File, error) {
	f, err := s.FS.Open(name, readOnly)
	return sickFile{f, s}, err
}

func (f sickFile) ReadAt(b []byte, off int64) (int, error) {
	if f.fs.block < 0 || off < f.fs.block+blockBytes && off+int64(len(b)) > f.fs.block {
		for i := range b {
			b[i] = 0xdb // a reader may use b as scratch space
		}
		return 0, f.fs.err
	}
	return f.File.ReadAt(b, off)
}

var errSick = errors.New("input/output error")

// eachBlockSick calls try for each block of a log of 30 frames, which cannot be read because of why; end is where the frames end.
func eachBlockSick(t *testing.T, why error, try func(d *disk, block, end int64)) {
	t.Helper()
	d, log := newLog(t)
	for range 30 { // together longer than what is read at a time
		add(t, log, strings.Repeat("r", windowBytes/20))
	}
	ok(t, log.Close())
	size := int64(len(d.read(d.o.path(1))))
	for block := int64(0); block < size; block += blockBytes {
		d.o.FS = sickFS{d.Disk, block, why}
		try(d, block, log.end)
	}
}

// A log of which a block cannot be read is not replayed without it, wherever that is: what the disk does not say now it may say
// later. The error has file and offset. Verify calls the block damage, and goes on behind it.
func TestUnreadableBlock(t *testing.T) {
	eachBlockSick(t, errSick, func(d *disk, block, end int64) {
		k, err := replayAll(d.o)
		var bad *damage.Error
		if !errors.Is(err, errSick) || !errors.As(err, &bad) || bad.File != d.o.path(1) || bad.Offset != block || len(k.rec.Damage) > 0 {
			t.Errorf("block %d: %v, damage %v", block, err, k.rec.Damage)
		}
		damaged, torn, err := verify(d.o)
		ok(t, err)
		found := 0
		for _, bad := range damaged {
			if errors.Is(bad, errSick) && bad.Offset == block {
				found++
			}
		}
		if found != 1 {
			t.Errorf("block %d: damage %v", block, damaged)
		}
		if block > end && len(damaged)+len(torn) != 1 {
			t.Errorf("block %d behind the end: %v, %v", block, damaged, torn)
		}
	})
}

// An error that says nothing about the bytes is no damage to them, for Verify either.
func TestLogUnreadableForAMoment(t *testing.T) {
	for _, why := range vfs.PassingErrors {
		eachBlockSick(t, why, func(d *disk, block, _ int64) {
			k, err := replayAll(d.o)
			damaged, torn, verr := verify(d.o)
			if n := len(k.rec.Damage) + len(damaged) + len(torn); n > 0 {
				t.Errorf("block %d: %v, %v, %v", block, k.rec.Damage, damaged, torn)
			}
			for _, err := range []error{err, verr} {
				var bad *damage.Error
				if !errors.Is(err, why) || errors.As(err, &bad) || !strings.Contains(err.Error(), fmt.Sprintf("%s: offset %d", d.o.path(1), block)) {
					t.Errorf("block %d: %v", block, err)
				}
			}
		})
	}
}

// A full disk has the log go on in the newest file, but not where that cannot be read to its end: nothing is written then.
func TestResumeInAnUnreadableFile(t *testing.T) {
	for _, why := range []error{errSick, vfs.PassingErrors[0]} {
		eachBlockSick(t, why, func(d *disk, block, _ int64) {
			before := string(d.read(d.o.path(1)))
			later := d.createLater(2, 31, "")
			later.mu.Lock()
			err := later.resume(nil)
			later.mu.Unlock()
			if !errors.Is(err, why) || later.Err() != nil || string(d.read(d.o.path(1))) != before {
				t.Errorf("block %d: resumed: %v, poisoned: %v", block, err, later.Err())
			}
		})
	}
}

// What is to be written once more, and the disk cannot read, is left as it is: on a disk that is gone that ends, too. What cannot be read
// just now may be in memory and not on the disk: it is not taken for written.
func TestRewriteOfWhatCannotBeRead(t *testing.T) {
	d := newDisk(t)
	add(t, d.create(1, 1, ""), "first")
	d = d.kill()
	o := d.o
	for _, why := range append([]error{syscall.EIO}, vfs.PassingErrors...) {
		o.FS = sickFS{d.Disk, -1, why}
		err := RewriteFiles(o)
		if why == syscall.EIO {
			ok(t, err)
		} else if !errors.Is(err, why) || !strings.Contains(err.Error(), "offset 0") {
			t.Errorf("%v: %v", why, err)
		}
	}
	if k := d.replay(); len(k.frames) != 1 {
		t.Errorf("%d frames", len(k.frames))
	}
}

// A log that cannot begin for want of file handles begins when there are some: no fsync has failed.
func TestBeginsWhenThereAreFilesAgain(t *testing.T) {
	d := newDisk(t)
	add(t, d.create(1, 1, ""), "first")
	d = d.kill()
	log := d.createLater(2, 2, "")
	d.fails(syscall.EMFILE, kinds("open"))
	if _, err := log.Append(2, []byte("second")); !errors.Is(err, syscall.EMFILE) || log.Err() != nil {
		t.Fatalf("%v, %v", err, log.Err())
	}
	d.Before(nil)
	add(t, log, "second")
	ok(t, log.Close())
}
