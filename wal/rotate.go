package wal

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Rotate goes on in a new file. snapshot gets the number of the last frame of the old file and returns the caller's small
// state as of that frame; no frame is appended meanwhile, so it must not call the log, but for LastLSN, DurableLSN and Err.
//
// When Rotate returns, all frames up to lsn are durable, and so is the head of the new file, id. On a full disk the log may
// go on in the old file, id, behind a snapshot there: the files before it can then be removed, and be the next one. If it
// fails and the log is not poisoned, the log goes on, in the old file: vfs.ErrNoSpace, errTooLarge, ErrClosed; or in the new one,
// whose name is not durable yet: vfs.ErrNotSynced.
func (l *Log) Rotate(snapshot func(lsn uint64) []byte) (id, lsn uint64, err error) {
	l.turn.take()
	defer l.turn.pass()

	if !l.begun.Load() { // there is no old file
		l.mu.Lock()
		defer l.mu.Unlock()
		lsn = l.last.Load()
		if err = l.beginWith(snapshot(lsn)); err == nil {
			err = l.syncName()
		}
		return l.id, lsn, err
	}

	// Sync the bulk of the old file while others still append to it.
	l.mu.Lock()
	err, f, last := l.writable(), l.file, l.last.Load()
	l.mu.Unlock()
	if err == nil {
		err = l.syncName() // a power cut that took this name and left the next one would make a hole
	}
	if err == nil {
		err = l.fsync(f, last)
	}
	if err != nil {
		return 0, 0, err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return 0, 0, err
	}
	lsn = l.last.Load()
	if err := l.fsync(l.file, lsn); err != nil {
		return 0, 0, err
	}
	old, oldID, oldBytes := l.file, l.id, l.reservedBytes
	state := snapshot(lsn)
	if err := l.start(l.id+1, state, l.o.PreallocBytes/2); err != nil {
		if !errors.Is(err, vfs.ErrNoSpace) || l.Err() != nil {
			return 0, 0, errors.Join(err, l.Err())
		}
		if l.goOn(state) == nil {
			return l.id, lsn, nil
		}
		// The try may have reserved more, or given up what was. A small file is better than none, unless the old one has more
		// left: what makes room on a full disk must find it.
		oldBytes = l.reservedBytes
		left := max(0, l.spare.bytes-headerBytes-frameBytes(uint32(frameHead+len(state))))
		if l.Err() != nil || left < min(l.o.PreallocBytes/2, l.reservedBytes-l.end) || l.start(l.id+1, state, tailBytes) != nil {
			return 0, 0, errors.Join(err, l.Err())
		}
	}
	if err := old.Close(); err != nil {
		l.o.Logger.Warn("close of an old log file failed", "file", old.Name(), "error", err)
	}
	l.filesMu.Lock()
	l.older = append(l.older, olderFile{id: oldID, bytes: oldBytes})
	l.filesMu.Unlock()
	l.prepareSpare()
	return l.id, lsn, l.syncName()
}

// start writes the head of file id into the spare, makes it durable, gives it its name, and makes that durable, unless its folder
// cannot be opened just now: then the next sync does. A file with a log file's name always has a whole head. The caller has
// made all frames up to the last durable, so the name also proves that they were. At least ahead bytes are reserved behind the
// head. The caller holds the turn and mu, or the only reference.
func (l *Log) start(id uint64, snapshot []byte, ahead int64) error {
	if len(snapshot) > MaxPayload {
		return fmt.Errorf("wal: start file %d: snapshot: %w: %d bytes, at most %d", id, errTooLarge, len(snapshot), MaxPayload)
	}
	last := l.last.Load()
	head := appendHeader(nil, fileHeader{uuid: l.o.UUID, id: id, first: last + 1})
	head = appendFrame(head, l.seed, frameHeader{
		kind: KindSnapshot, file: id, offset: headerBytes, lsn: last, durable: last, boot: l.o.Boot,
	}, snapshot)
	if err := l.fitSpare(int64(len(head)), ahead); err != nil {
		return fmt.Errorf("wal: start file %d: %w", id, err)
	}
	s, reservedBytes := l.spare.file, l.spare.bytes
	if err := writeAll(s, head, 0); err != nil {
		return errors.Join(fmt.Errorf("wal: start file %d: %w", id, err), l.dropSpare())
	}
	if err := s.Sync(); err != nil {
		return l.poisonWith(fmt.Errorf("fsync the head of file %d: %w", id, err))
	}
	f, err := l.name(s, id)
	if err != nil {
		return err
	}
	l.spare = spare{}
	l.file, l.id = f, id
	l.headBytes, l.end, l.reservedBytes = int64(len(head)), int64(len(head)), reservedBytes
	return nil
}

// name renames the spare s to the log file id and opens that. It closes s before, because some systems rename no open file.
func (l *Log) name(s vfs.File, id uint64) (vfs.File, error) {
	l.spare.file = nil
	name := l.o.path(id)
	err := s.Close()
	if err == nil {
		err = l.o.FS.Rename(l.sparePath, name)
	}
	if err != nil {
		err = fmt.Errorf("wal: start file %d: %w", id, err)
		if _, serr := l.o.FS.Stat(name); !errors.Is(serr, fs.ErrNotExist) {
			// Frames appended to the old file would be superseded by the new one.
			return nil, l.poisonWith(err)
		}
		return nil, errors.Join(err, l.dropSpare())
	}
	l.nameDue = true
	if err := l.syncName(); err != nil && !errors.Is(err, vfs.ErrNotSynced) {
		return nil, err
	}
	f, err := l.o.FS.Open(name, false)
	if err != nil { // for want of file handles, too: the name may be on the disk, and frames in the old file would come behind it
		return nil, l.poisonWith(err)
	}
	return f, nil
}
