package folder

import (
	"errors"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// ReaderWait bounds how long a writer waits for readers that are opening the store, and a reader for a checkpoint to end.
const ReaderWait = 2 * time.Second

// LockAlone locks a file for a writer. A reader has it for a moment only: that is waited for.
func LockAlone(name string, readOnly bool) (*vfs.Lock, error) {
	for until := time.Now().Add(ReaderWait); ; time.Sleep(time.Millisecond) {
		lock, err := vfs.AcquireLock(name, readOnly)
		if by := new(vfs.LockedError); !errors.As(err, &by) || by.PID != 0 || time.Now().After(until) {
			return lock, err
		}
	}
}
