package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Log is the end of the log, where frames are appended. It is safe for concurrent use.
type Log struct {
	o    Options
	seed uint64

	last    atomic.Uint64 // written under mu
	durable atomic.Uint64 // written by who has the turn
	poison  atomic.Pointer[error]

	turn turn // to fsync, and to replace file; taken before mu

	mu            sync.Mutex
	closed        bool     // guarded by mu
	id            uint64   // of file; guarded by mu
	file          vfs.File // replaced under mu by who has the turn
	end           int64    // where the next frame goes; guarded by mu
	reservedBytes int64    // file space reserved, from 0; guarded by mu
	headBytes     int64    // length of header and snapshot of file; guarded by mu
	spare         spare    // guarded by mu
	buf           []byte   // guarded by mu

	filesMu sync.Mutex
	older   []olderFile // files before the current one, ascending; guarded by filesMu
}

type olderFile struct {
	id    uint64
	bytes int64 // allocated
}

// Create starts the log file with this id, which must be larger than that of every file there is, with a snapshot of the
// caller's small state. The first frame appended will have the number nextLSN, at least 1.
//
// Create first syncs the files that are there: from then on the new file's existence proves that frames before nextLSN
// had been durable. When it returns, the new file's head and its directory entry are durable.
func Create(o Options, id, nextLSN uint64, snapshot []byte) (*Log, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if id == 0 || nextLSN == 0 {
		return nil, fmt.Errorf("wal: file id %d and next LSN %d must be at least 1", id, nextLSN)
	}
	o = o.withDefaults()
	ids, err := o.list()
	if err != nil {
		return nil, err
	}
	l := &Log{o: o, seed: frameSeed(o.UUID)}
	l.turn.cond.L = &l.turn.mu
	for _, old := range ids {
		if old >= id {
			return nil, fmt.Errorf("wal: create file %d: %s: %w", id, o.path(old), fs.ErrExist)
		}
		bytes, err := syncFile(o.FS, o.path(old))
		if err != nil {
			return nil, fmt.Errorf("wal: sync what was recovered: %w", err)
		}
		l.older = append(l.older, olderFile{id: old, bytes: bytes})
	}
	// What a crash left under the spare's name may hold a head already; only zeros may follow a log's end.
	if err := o.FS.Remove(o.sparePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("wal: remove a leftover: %w", err)
	}
	l.last.Store(nextLSN - 1)
	l.durable.Store(nextLSN - 1)
	if err := l.start(id, snapshot); err != nil {
		return nil, errors.Join(err, l.dropSpare())
	}
	l.prepareSpare()
	return l, nil
}

func syncFile(fsys vfs.FS, name string) (allocated int64, err error) {
	f, err := fsys.Open(name, false)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Sync(); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	return info.Allocated, err
}

// LastLSN is the number of the last frame appended.
func (l *Log) LastLSN() uint64 { return l.last.Load() }

// DurableLSN is the number up to which frames are known to survive a power cut.
func (l *Log) DurableLSN() uint64 { return l.durable.Load() }

// FileID is the id of the file that is being appended to.
func (l *Log) FileID() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id
}

// Bytes is the space that all log files take, with what is reserved ahead.
func (l *Log) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.reservedBytes + l.spare.bytes
	l.filesMu.Lock()
	defer l.filesMu.Unlock()
	for _, f := range l.older {
		n += f.bytes
	}
	return n
}

// Err returns the error that every write returns since the log was poisoned, or nil.
func (l *Log) Err() error {
	if p := l.poison.Load(); p != nil {
		return *p
	}
	return nil
}

// poisonWith makes err the answer to every later write; the first one stays.
func (l *Log) poisonWith(err error) error {
	err = fmt.Errorf("%w: %w", ErrPoisoned, err)
	if l.poison.CompareAndSwap(nil, &err) {
		l.o.Logger.Error("log poisoned", "dir", l.o.Dir, "error", err)
	}
	return l.Err()
}

// writable returns why nothing can be written. Its caller holds mu.
func (l *Log) writable() error {
	if l.closed {
		return ErrClosed
	}
	return l.Err()
}

// Remove deletes the log files with an id below belowFile, and makes that durable. It never deletes the current file.
func (l *Log) Remove(belowFile uint64) error {
	l.mu.Lock()
	err := l.writable()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	l.filesMu.Lock()
	defer l.filesMu.Unlock()
	// Oldest first, each one durably: a power cut must not leave a hole, which would look like a lost file.
	for len(l.older) > 0 && l.older[0].id < belowFile {
		name := l.o.path(l.older[0].id)
		if err := l.o.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("wal: %w", err)
		}
		if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
			return l.poisonWith(fmt.Errorf("sync %s: %w", l.o.Dir, err))
		}
		l.older = l.older[1:]
	}
	return nil
}

// Close syncs what was appended and closes the files. The spare stays, for the next Create.
func (l *Log) Close() error {
	l.turn.take()
	defer l.turn.pass()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	l.closed = true
	err := l.Err()
	if err == nil {
		err = l.fsync(l.file, l.last.Load())
	}
	if l.spare.file != nil {
		err = errors.Join(err, l.spare.file.Close())
		l.spare.file = nil
	}
	return errors.Join(err, l.file.Close())
}
