package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Lock is an advisory lock on a file: an exclusive one, whose holder's pid the file names, or one that several readers share. The file
// is never removed: whoever removed it would let two processes lock two different files of one name.
type Lock struct {
	f     *os.File
	name  string
	named bool // the file has our pid
}

// LockedError says who holds a lock.
type LockedError struct {
	Name string
	PID  int // 0 if unknown, as that of a reader is
}

func (e *LockedError) Error() string {
	if e.PID == os.Getpid() {
		return fmt.Sprintf("%s: already open in this process (pid %d)", e.Name, e.PID)
	}
	if e.PID == 0 {
		return fmt.Sprintf("%s: in use by another process", e.Name)
	}
	return fmt.Sprintf("%s: in use by process %d", e.Name, e.PID)
}

func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// held refuses what does not go with another lock of the file in this process, which the record locks of some systems would grant.
var held struct {
	sync.Mutex
	locks []heldLock
}

type heldLock struct {
	file   os.FileInfo
	shared bool
}

// AcquireLock locks name for this holder alone, without waiting, creating it unless readOnly, and writes this process's pid into it
// unless readOnly, or somebody else keeps something in the file: that is locked and not changed. It returns a [*LockedError] when it is
// taken.
func AcquireLock(name string, readOnly bool) (*Lock, error) { return take(name, readOnly, false) }

// ShareLock locks name, which must be there, for one of several readers, without waiting. It returns a [*LockedError] when somebody has
// it alone.
func ShareLock(name string) (*Lock, error) { return take(name, true, true) }

func take(name string, readOnly, shared bool) (*Lock, error) {
	flag := os.O_RDWR | os.O_CREATE
	if readOnly {
		flag = os.O_RDONLY
	}
	// Asked before it is opened: opening a pipe waits for the other end.
	if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("lock %s: not a regular file but %s", name, info.Mode().Type())
	}
	f, err := openFile(name, flag|openFlags, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	held.Lock()
	defer held.Unlock()
	for _, h := range held.locks {
		if os.SameFile(h.file, info) && !(h.shared && shared) {
			f.Close()
			if h.shared {
				return nil, &LockedError{Name: name}
			}
			return nil, &LockedError{Name: name, PID: os.Getpid()}
		}
	}
	if err := lockFile(f, shared); err != nil {
		pid := readPID(f)
		if errors.Is(err, ErrLocked) && !shared && lockFile(f, true) == nil { // readers have it: the pid is that of a dead writer
			pid = 0
		}
		f.Close()
		if errors.Is(err, ErrLocked) {
			return nil, &LockedError{Name: name, PID: pid}
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	named := !readOnly && holdsPID(f)
	if named && f.Truncate(0) == nil {
		// The lock holds without its pid: a full disk must not keep a store from being opened, and room from being made.
		f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	held.locks = append(held.locks, heldLock{info, shared})
	tell(f, true)
	return &Lock{f: f, name: name, named: named}, nil
}

// Release gives the lock up.
func (l *Lock) Release() error {
	held.Lock()
	defer held.Unlock()
	if l.named {
		l.f.Truncate(0) // a read-only holder, who writes no pid, must not go by ours
	}
	if info, err := l.f.Stat(); err == nil {
		if i := slices.IndexFunc(held.locks, func(h heldLock) bool { return os.SameFile(h.file, info) }); i >= 0 {
			held.locks = slices.Delete(held.locks, i, i+1)
		}
	}
	tell(l.f, false)
	return errors.Join(unlockFile(l.f), l.f.Close())
}

// OnLock, if a program sets it before it locks anything, is told of each file that is locked, by its descriptor, and of its end, before it is closed. A lock lasts
// as long as any process has the file open that it was taken with: a process that forks closes them in its child.
var OnLock func(fd uintptr, locked bool)

func tell(f *os.File, locked bool) {
	if OnLock != nil {
		OnLock(f.Fd(), locked)
	}
}

// IsLock reports whether a file that begins with head is one of ours: there is nothing in it, or zeros that a power cut left, or a pid.
func IsLock(head []byte) bool {
	if Blank(head) {
		return true
	}
	pid, err := strconv.ParseUint(strings.TrimSuffix(string(head), "\n"), 10, 32)
	return err == nil && strings.HasPrefix(string(head), strconv.FormatUint(pid, 10))
}

func holdsPID(f *os.File) bool {
	b := make([]byte, headBytes)
	n, err := f.ReadAt(b, 0)
	return (err == nil || err == io.EOF) && IsLock(b[:n])
}

func readPID(f *os.File) int {
	b := make([]byte, 20)
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
