package wal

import (
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// resume goes on in the newest recovered file, in the space that is reserved behind its last frame, because a full disk
// has no room for a new file. Those blocks are never given up on the way, so nobody else can take them.
//
// It is safe at every point: all that was recovered has been synced and is not touched; what a crash tore behind it is
// durably zeroed before anything is written there, so that no old frame can come to follow a new one; and the snapshot,
// like that at the head of a file, is durable before the first frame. A crash on the way leaves a torn end. The caller
// has synced the file and its name, and holds the turn and mu.
func (l *Log) resume(snapshot []byte) error {
	l.filesMu.Lock()
	defer l.filesMu.Unlock()
	n := len(l.older) - 1
	if n < 0 || l.older[n].id+1 != l.id {
		return errors.New("wal: there is no file to go on in")
	}
	id := l.older[n].id
	end, size, zero, err := l.tail(id)
	if err != nil {
		return err
	}
	f, err := l.o.FS.Open(l.o.path(id), false)
	if err != nil {
		return err
	}
	last := l.last.Load()
	b := appendFrame(nil, l.seed, frameHeader{
		kind: KindSnapshot, file: id, offset: uint64(end), lsn: last, durable: last, boot: l.o.Boot,
	}, snapshot)
	head := int64(headerBytes + len(b))
	if left := max(size, roundUp(end+int64(len(b))+tailBytes, blockBytes)) - end - int64(len(b)); left < min(l.o.PreallocBytes/2, l.spare.bytes-head) {
		return errors.Join(fmt.Errorf("wal: go on in file %d: %d bytes would be left, the spare has more: %w", id, left, vfs.ErrNoSpace), f.Close())
	}
	size, err = l.putTail(f, b, end, size, zero)
	if err != nil {
		return errors.Join(fmt.Errorf("wal: go on in file %d at %d: %w", id, end, err), f.Close())
	}
	l.o.Logger.Info("no space for a new log file: the log goes on in the last one", "file", f.Name(), "offset", end)
	l.taken.Add(size - l.older[n].bytes)
	l.older = l.older[:n]
	l.file, l.id = f, id
	l.headBytes, l.end, l.reservedBytes = headerBytes+int64(len(b)), end+int64(len(b)), size
	return nil
}

// goOn is the rotation for a full disk that has no room for another file: the log goes on in the current one, behind a
// snapshot, which leaves the space that is reserved for what makes room. The caller has synced the file, and holds the turn
// and mu.
func (l *Log) goOn(snapshot []byte) error {
	last := l.last.Load()
	b := appendFrame(nil, l.seed, frameHeader{
		kind: KindSnapshot, file: l.id, offset: uint64(l.end), lsn: last, durable: last, boot: l.o.Boot,
	}, snapshot)
	if err := l.reserve(int64(len(b)), l.o.PreallocBytes/2); err != nil {
		return err
	}
	if err := writeAll(l.file, b, l.end); err != nil {
		return l.undo(err)
	}
	if err := l.file.Sync(); err != nil {
		return l.poisonWith(fmt.Errorf("fsync a snapshot in file %d: %w", l.id, err))
	}
	l.end += int64(len(b))
	return nil
}

// putTail writes b durably at the end of a recovered file of that size. It returns the new size.
func (l *Log) putTail(f vfs.File, b []byte, end, size int64, zero bool) (int64, error) {
	if need := roundUp(end+int64(len(b))+tailBytes, blockBytes); need > size {
		if err := f.Allocate(size, need-size); err != nil {
			return 0, err
		}
		size = need
	}
	if !zero {
		if err := writeAll(f, make([]byte, size-end), end); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			// The pages count as clean now, and the next run would read zeros that are not on the disk: better none.
			return 0, l.poisonWith(errors.Join(err, f.Truncate(end)))
		}
	}
	if err := writeAll(f, b, end); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, l.poisonWith(err)
	}
	return size, nil
}

// tail finds the end of the last frame of a recovered file, which must be the last that there is, and says whether only zeros
// follow.
func (l *Log) tail(id uint64) (end, size int64, zero bool, err error) {
	f, err := openLogFile(l.o, id, false)
	if err != nil {
		return 0, 0, false, err
	}
	defer f.Close()
	if f.headErr != nil {
		return 0, 0, false, f.headErr
	}
	lsn := f.first - 1
	end = headerBytes
	for {
		fr, bad := f.frame(end)
		if bad != nil {
			break
		}
		if fr.kind != KindSnapshot {
			lsn++
		}
		if fr.lsn != lsn || (end == headerBytes) && fr.kind != KindSnapshot {
			return 0, 0, false, fmt.Errorf("%s: frame %d at %d: %d expected", f.name, fr.lsn, end, lsn)
		}
		end = fr.end()
	}
	zero = f.nonzero(end) < 0
	if f.err != nil {
		return 0, 0, false, f.err
	}
	if last := l.last.Load(); end == headerBytes || lsn != last {
		return 0, 0, false, fmt.Errorf("%s: it is damaged: frame %d is its last, the log ends with %d", f.name, lsn, last)
	}
	return end, f.size, zero, nil
}
