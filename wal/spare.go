package wal

import (
	"errors"
	"io/fs"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// spare is the next log file: empty, its space reserved, under a temporary name.
type spare struct {
	file   vfs.File // nil if there is none
	bytes  int64    // reserved
	failed bool     // the last attempt failed; it was logged
}

// prepareSpare reserves the next file. Its failure is no one's error: it is tried again at the next append and rotation.
// The caller holds mu.
func (l *Log) prepareSpare() {
	err := l.growSpare(l.spareBytes())
	if err == nil {
		l.spare.failed = false
		return
	}
	err = errors.Join(err, l.dropEmptySpare())
	if !l.spare.failed {
		l.spare.failed = true
		l.o.Logger.Warn("no space for the next log file could be reserved", "dir", l.o.Dir, "error", err)
	}
}

// spareBytes is what the spare should reserve. The caller holds mu.
func (l *Log) spareBytes() int64 { return roundUp(l.headBytes, blockBytes) + l.o.PreallocBytes }

// fitSpare makes the spare, if there is none, and sees to it that n bytes fit in, and ahead more: a log that goes on in less
// could not write what makes room on a full disk. The caller holds mu.
func (l *Log) fitSpare(n, ahead int64) error {
	if l.spare.file != nil && n+ahead <= l.spare.bytes {
		return nil
	}
	err := l.growSpare(roundUp(n, blockBytes) + l.o.PreallocBytes)
	if errors.Is(err, vfs.ErrNoSpace) {
		err = l.growSpare(roundUp(n+ahead, blockBytes))
	}
	if err != nil {
		return errors.Join(err, l.dropEmptySpare())
	}
	return nil
}

// growSpare makes the spare if there is none and reserves space up to n bytes.
func (l *Log) growSpare(n int64) error {
	if err := l.adoptSpare(); err != nil { // one that could not be made ready before
		return err
	}
	if l.spare.file == nil {
		f, err := l.o.FS.Create(l.sparePath)
		if err != nil {
			return err
		}
		l.spare.file = f
		l.holdSpare(0)
	}
	if n <= l.spare.bytes {
		return nil
	}
	if err := l.spare.file.Allocate(l.spare.bytes, n-l.spare.bytes); err != nil {
		return err
	}
	l.holdSpare(n)
	return nil
}

// dropEmptySpare deletes a spare that could not be reserved. One that is only too small is kept: on a full disk, its blocks may
// be all that there is.
func (l *Log) dropEmptySpare() error {
	if l.spare.bytes > 0 {
		return nil
	}
	return l.dropSpare()
}

// holdSpare notes that the spare occupies n bytes now.
func (l *Log) holdSpare(n int64) {
	l.taken.Add(n - l.spare.bytes)
	l.spare.bytes = n
}

// dropSpare deletes the spare.
func (l *Log) dropSpare() error {
	var err error
	if l.spare.file != nil {
		err = l.spare.file.Close()
	}
	l.spare.file = nil
	l.holdSpare(0)
	if rerr := l.o.FS.Remove(l.sparePath); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// dropLeftSpares deletes what earlier runs reserved under other names. Where that fails, the next run tries again. The caller holds mu.
func (l *Log) dropLeftSpares() {
	for _, path := range l.leftSpares {
		if err := l.o.FS.Remove(path); err != nil {
			l.o.Logger.Info("what an earlier run reserved for the next log file stays", "file", path, "error", err)
		}
	}
	l.leftSpares = nil
}
