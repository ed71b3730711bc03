package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// Log is the end of the log, where frames are appended. It is safe for concurrent use.
type Log struct {
	o    Options
	seed uint64

	last    atomic.Uint64 // written under mu
	durable atomic.Uint64 // written by who has the turn
	undone  atomic.Bool   // a frame that was refused may be on the disk; set under mu, and taken back by who has the turn
	poison  vfs.Poison
	taken   atomic.Int64 // bytes that all files occupy

	turn turn // to fsync, and to replace file; taken before mu

	begun   atomic.Bool // the file exists; set under mu by who has the turn
	nameDue bool        // the file's name is not durable: its folder could not be opened; guarded by turn

	mu            lock.Mutex[lock.Log]
	closed        bool          // guarded by mu
	snapshot      func() []byte // of the file's head, until it is begun; guarded by mu
	id            uint64        // of file; guarded by mu
	file          vfs.File      // replaced under mu by who has the turn
	end           int64         // where the next frame goes; guarded by mu
	reservedBytes int64         // file space reserved, from 0; guarded by mu
	headBytes     int64         // length of header and snapshot of file; guarded by mu
	spare         spare         // guarded by mu
	sparePath     string        // never changes
	leftSpares    []string      // paths of files that earlier runs reserved and nobody needs; guarded by mu
	buf           []byte        // guarded by mu

	filesMu lock.Mutex[lock.LogFiles]
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
	l, err := CreateLater(o, id, nextLSN, func() []byte { return snapshot })
	if err == nil {
		err = l.begin()
	}
	if err != nil {
		return nil, err
	}
	if err := l.syncName(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// CreateLater is Create put off until the first Append, Sync or Rotate: what is only read costs no fsync. snapshot is called then,
// not before, and must not call the log; it says the same each time. What is lacking for the file then (space, say) is the error of
// that call, and the next tries again.
func CreateLater(o Options, id, nextLSN uint64, snapshot func() []byte) (*Log, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if id == 0 || nextLSN == 0 {
		return nil, fmt.Errorf("wal: file id %d and next LSN %d must be at least 1", id, nextLSN)
	}
	o = o.withDefaults()
	ids, spares, err := o.files()
	if err != nil {
		return nil, err
	}
	l := &Log{o: o, seed: frameSeed(o.UUID), id: id, snapshot: snapshot}
	l.turn.cond.L = &l.turn.mu
	for _, old := range ids {
		if old >= id {
			return nil, fmt.Errorf("wal: create file %d: %s: %w", id, o.path(old), fs.ErrExist)
		}
		info, err := o.FS.Stat(o.path(old))
		if err != nil {
			return nil, fmt.Errorf("wal: %w", err)
		}
		l.older = append(l.older, olderFile{id: old, bytes: info.Allocated})
		l.taken.Add(info.Allocated)
	}
	if l.sparePath, l.leftSpares, err = o.freeSpare(spares); err != nil {
		return nil, err
	}
	if info, err := o.FS.Stat(l.sparePath); err == nil { // until begin
		l.holdSpare(info.Allocated)
	}
	l.last.Store(nextLSN - 1)
	return l, nil
}

// Begun reports whether the file that is appended to exists: false after CreateLater, until something is written.
func (l *Log) Begun() bool { return l.begun.Load() }

// begin makes the first file, if it is not there yet.
func (l *Log) begin() error {
	if l.begun.Load() {
		return nil
	}
	l.turn.take()
	defer l.turn.pass()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun.Load() {
		return nil
	}
	return l.beginWith(l.snapshot())
}

// beginWith makes the first file. The caller holds the turn and mu.
func (l *Log) beginWith(snapshot []byte) error {
	if err := l.writable(); err != nil {
		return err
	}
	for _, old := range l.older { // the run before need not have synced them
		f, err := l.o.FS.Open(l.o.path(old.id), false)
		if err != nil { // too many open files, say: no fsync has failed
			return fmt.Errorf("wal: sync what was recovered: %w", err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return l.poisonWith(fmt.Errorf("sync what was recovered: %w", err))
		}
	}
	if len(l.older) > 0 { // nor may the newest one's name: without it there would be a hole before the next
		if err := l.syncDir(); err != nil {
			return err
		}
	}
	l.dropLeftSpares()
	if err := l.adoptSpare(); err != nil {
		return fmt.Errorf("wal: use what an earlier run reserved: %w", err)
	}
	if err := l.startOrResume(snapshot); err != nil {
		if l.Err() != nil || l.spare.bytes == 0 {
			err = errors.Join(err, l.dropSpare())
		}
		return err
	}
	l.durable.Store(l.last.Load())
	l.snapshot = nil
	l.begun.Store(true)
	l.prepareSpare()
	return nil
}

// startOrResume begins a new file, or goes on in the newest one where a full disk has not enough room.
func (l *Log) startOrResume(snapshot []byte) error {
	err := l.start(l.id, snapshot, l.o.PreallocBytes/2)
	if !errors.Is(err, vfs.ErrNoSpace) || l.Err() != nil {
		return err
	}
	l.durable.Store(l.last.Load()) // what was recovered has been synced
	rerr := l.resume(snapshot)
	if rerr == nil || l.Err() != nil {
		return rerr
	}
	if err = l.start(l.id, snapshot, tailBytes); err == nil { // a little is better than nothing
		return nil
	}
	return errors.Join(err, rerr)
}

// SyncFiles makes durable what [Replay] reads, with no log open. An error leaves it unknown what is: replay anew.
func SyncFiles(o Options) error {
	o = o.withDefaults()
	ids, err := o.list()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := syncFile(o.FS, o.path(id)); err != nil {
			return fmt.Errorf("wal: sync what was recovered: %w", err)
		}
	}
	return o.FS.SyncDir(o.Dir)
}

func syncFile(fsys vfs.FS, name string) error {
	f, err := fsys.Open(name, false)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// RewriteFiles is SyncFiles after an fsync that has failed: memory may hold pages for clean that the disk never got, so each is
// written once more as it is read. What the disk cannot read is not in memory, and is left as the disk has it; what cannot be read
// for a reason that passes ([vfs.Passing]) may be, and is an error.
func RewriteFiles(o Options) error {
	o = o.withDefaults()
	ids, err := o.list()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := rewriteFile(o.FS, o.path(id)); err != nil {
			return fmt.Errorf("wal: write again what was recovered: %w", err)
		}
	}
	return SyncFiles(o)
}

func rewriteFile(fsys vfs.FS, name string) error {
	f, err := fsys.Open(name, false)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = vfs.Rewrite(f, make([]byte, windowBytes), 0, info.Size)
	}
	return errors.Join(err, f.Close())
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

// Bytes is the space that all log files take, with what is reserved ahead. It waits for nobody.
func (l *Log) Bytes() int64 { return l.taken.Load() }

// Room is what frames take of the current file, and what is reserved behind the last one.
func (l *Log) Room() (used, ahead int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end - l.headBytes, l.reservedBytes - l.end
}

// Err returns the error that every write returns since the log was poisoned, or nil.
func (l *Log) Err() error { return l.poison.Err() }

// poisonWith makes err the answer to every later write; the first one stays.
func (l *Log) poisonWith(err error) error {
	return l.poison.Set(err, func(err error) {
		if l.o.Poisoned != nil {
			l.o.Poisoned()
		}
		l.o.Logger.Error("log poisoned", "dir", l.o.Dir, "error", err)
	})
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
	for {
		l.mu.Lock()
		err := l.writable()
		used := false
		if err == nil && l.begun.Load() && l.reservedBytes-l.end >= l.o.PreallocBytes/2 {
			used, err = l.recycle(belowFile) // the current file has what it needs: these blocks are for the next one
		}
		l.mu.Unlock()
		if err != nil {
			return err
		}
		if used {
			continue
		}
		if more, err := l.removeOldest(belowFile); err != nil || !more {
			return err
		}
	}
}

// removeOldest deletes the oldest log file, if its id is below belowFile, and makes that durable before the next one goes: a
// power cut must not leave a hole, which would look like a lost file.
func (l *Log) removeOldest(belowFile uint64) (more bool, err error) {
	l.filesMu.Lock()
	defer l.filesMu.Unlock()
	if len(l.older) == 0 || l.older[0].id >= belowFile {
		return false, nil
	}
	if err := l.o.FS.Remove(l.o.path(l.older[0].id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("wal: %w", err)
	}
	if err := l.syncDir(); err != nil {
		return false, err
	}
	l.taken.Add(-l.older[0].bytes)
	l.older = l.older[1:]
	return true, nil
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
	begun := l.begun.Load() // else there is no file
	if err == nil && begun {
		err = l.fsync(l.file, l.last.Load())
	}
	// Without a whole spare, what is reserved here is all that the next run may find on a full disk. Else the next Replay need not
	// read it; that it does is no one's error.
	if err == nil && begun && l.spare.file != nil && l.spare.bytes >= l.spareBytes() && l.file.Truncate(l.end+tailBytes) != nil {
		l.o.Logger.Info("the last log file keeps its reserved space", "file", l.file.Name())
	}
	if l.spare.file != nil {
		err = errors.Join(err, l.spare.file.Close())
		l.spare.file = nil
	}
	if begun {
		err = errors.Join(err, l.file.Close())
	}
	return err
}
