package wal

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Files that become the spare as they are: on a full disk, blocks that are given back may be gone before they are asked for
// again. Under the spare's name a file is no part of the log, so what it held must not be needed any more when it gets that name.

// adoptSpare makes a spare of what an earlier run left under that name, if there is something and no spare. The caller holds
// mu.
func (l *Log) adoptSpare() error {
	if l.spare.file != nil {
		return nil
	}
	f, err := l.o.FS.Open(l.sparePath, false)
	if errors.Is(err, fs.ErrNotExist) {
		l.holdSpare(0)
		return nil
	}
	if err == nil {
		var reserved int64
		if reserved, err = l.blank(f); err == nil {
			l.spare.file = f
			l.holdSpare(reserved)
			return nil
		}
		f.Close()
	}
	if l.Err() != nil || errors.Is(err, vfs.ErrNotSynced) || vfs.Passing(err) {
		return err
	}
	l.o.Logger.Info("the space reserved for the next log file cannot be used", "dir", l.o.Dir, "error", err)
	if err := l.o.FS.Remove(l.sparePath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.holdSpare(0)
	return nil
}

// blank overwrites with zeros what f holds: it may be the head of a file, and only zeros may follow a log's end. They are
// synced together with the new head, before the file gets a log file's name. It returns how much of f is reserved.
func (l *Log) blank(f vfs.File) (reserved int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size := roundUp(info.Size, blockBytes)
	if most := 2 * l.o.PreallocBytes; size > most {
		if err := f.Truncate(most); err != nil {
			return 0, err
		}
		size = most
	}
	named := false
	b := make([]byte, min(size, windowBytes))
	for off := int64(0); off < size; off += int64(len(b)) {
		b = b[:min(size-off, int64(len(b)))]
		if n, err := f.ReadAt(b, off); n < len(b) && (err == nil || off+int64(n) < min(size, info.Size)) {
			return 0, errors.Join(err, fs.ErrInvalid)
		} else {
			clear(b[n:])
		}
		for i := 0; i < len(b); i += blockBytes {
			block := b[i:min(i+blockBytes, len(b))]
			if !vfs.Blank(block) {
				if !named { // or a power cut could bring the zeros back under the old name
					named = true
					if err := l.syncDir(); err != nil {
						return 0, err
					}
				}
				if err := writeAll(f, make([]byte, len(block)), off+int64(i)); err != nil {
					return 0, err
				}
			}
		}
	}
	return min(size, info.Allocated) / blockBytes * blockBytes, nil
}

// recycle makes a spare of the oldest file, where Remove may delete it and a full disk had no room for a spare, or for a small
// one only; used says whether it did. Its new name is made durable like its removal. The caller holds mu.
func (l *Log) recycle(belowFile uint64) (used bool, err error) {
	l.filesMu.Lock()
	defer l.filesMu.Unlock()
	least := l.o.PreallocBytes / 2
	if l.spare.file != nil && l.spare.bytes >= least || len(l.older) == 0 || l.older[0].id >= belowFile || l.older[0].bytes < least {
		return false, nil
	}
	if err := l.dropSpare(); err != nil {
		return false, nil // it is removed instead
	}
	if err := l.o.FS.Rename(l.o.path(l.older[0].id), l.sparePath); err != nil {
		return false, nil // it is removed instead
	}
	if err := l.syncDir(); err != nil {
		if errors.Is(err, vfs.ErrNotSynced) { // it is tried again, with the file under its own name
			err = errors.Join(err, l.o.FS.Rename(l.sparePath, l.o.path(l.older[0].id)))
		}
		return false, err
	}
	reserved := l.older[0].bytes
	l.taken.Add(-reserved)
	l.older = l.older[1:]
	l.holdSpare(reserved) // though it may not be adopted just now
	return true, l.adoptSpare()
}

// Donate gives the log a file of the store, on the same file system, that nobody needs any more, after it returned vfs.ErrNoSpace: a log that
// is yet to begin does so in the file's own blocks; else they are given back, for the next frames. The file has the store's UUID where
// a log file has it, or begins with zeros: by that the next run knows it, should this one end now.
func (l *Log) Donate(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if info, err := l.o.FS.Stat(name); err != nil {
		return err
	} else if !info.Regular {
		return fmt.Errorf("wal: %s: %w", name, vfs.ErrNotRegular)
	}
	if !l.begun.Load() && l.spare.file == nil {
		if err := l.o.FS.Rename(name, l.sparePath); err != nil {
			return err
		}
		if info, err := l.o.FS.Stat(l.sparePath); err == nil { // until begin
			l.holdSpare(info.Allocated)
		}
		return nil
	}
	return l.o.FS.Remove(name)
}
