package wal

import (
	"errors"
	"fmt"
	"sync"

	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// turn is the right to fsync and to replace the file, held by one goroutine at a time.
type turn struct {
	mu    lock.Mutex[lock.LogTurn]
	cond  sync.Cond
	taken bool // guarded by mu
}

// takeUnless waits for the turn, or until done reports true; it says whether it got the turn.
func (t *turn) takeUnless(done func() bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if done() {
			return false
		}
		if !t.taken {
			t.taken = true
			return true
		}
		t.cond.Wait()
	}
}

func (t *turn) take() { t.takeUnless(func() bool { return false }) }

// pass gives the turn up and wakes all who wait: most of them find that they are done.
func (t *turn) pass() {
	t.mu.Lock()
	t.taken = false
	t.mu.Unlock()
	t.cond.Broadcast()
}

// Sync returns when all frames up to lsn are durable. One of the goroutines that wait syncs for all of them. It does
// nothing if they are durable already. A failed fsync poisons the log: what it did not write is lost to later ones.
func (l *Log) Sync(lsn uint64) error {
	if last := l.last.Load(); lsn > last {
		return fmt.Errorf("wal: sync LSN %d: the last one appended is %d", lsn, last)
	}
	if l.durable.Load() >= lsn {
		return nil
	}
	if err := l.begin(); err != nil { // that syncs what was recovered
		if l.durable.Load() >= lsn { // and finds no room for more
			return nil
		}
		return err
	}
	if !l.turn.takeUnless(func() bool { return l.durable.Load() >= lsn || l.Err() != nil }) {
		if l.durable.Load() >= lsn {
			return nil
		}
		return l.Err()
	}
	defer l.turn.pass()
	l.mu.Lock()
	err, f, last := l.writable(), l.file, l.last.Load()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.fsync(f, last) // without mu: appends go on, for the next one's turn
}

// fsync makes f durable, which holds all frames up to last that may not be, and no more frames: one that was taken back would come to
// lie before a file that was begun without it. Its caller has the turn.
func (l *Log) fsync(f vfs.File, last uint64) error {
	if l.durable.Load() >= last && !l.undone.Load() {
		return nil
	}
	if err := l.syncName(); err != nil {
		return err
	}
	l.undone.Store(false) // before the fsync: one that is taken back meanwhile is for the next
	if err := f.Sync(); err != nil {
		return l.poisonWith(fmt.Errorf("fsync up to LSN %d: %w", last, err))
	}
	l.durable.Store(last)
	return nil
}

// WriteBack gives the disk what was appended before the call, ahead of a Sync (vfs.WriteBack). Its failure is that of an fsync: it is told
// once, so nobody else syncs meanwhile.
func (l *Log) WriteBack() error {
	if !l.begun.Load() {
		return nil
	}
	l.turn.take()
	defer l.turn.pass()
	l.mu.Lock()
	err, f := l.writable(), l.file
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if err := vfs.WriteBack(f); err != nil {
		return l.poisonWith(fmt.Errorf("write back: %w", err))
	}
	return nil
}

// syncDir makes the names of the log files durable. Its failure poisons the log, unless the folder could not even be opened.
func (l *Log) syncDir() error {
	err := l.o.FS.SyncDir(l.o.Dir)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("sync %s: %w", l.o.Dir, err)
	if errors.Is(err, vfs.ErrNotSynced) {
		return fmt.Errorf("wal: %w", err)
	}
	return l.poisonWith(err)
}

// syncName makes durable which file has which name, if that is still to be done. Its caller has the turn, or the only reference.
func (l *Log) syncName() error {
	if !l.nameDue {
		return nil
	}
	err := l.syncDir()
	l.nameDue = err != nil
	return err
}
