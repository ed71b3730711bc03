package db

import (
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// failBehind has the disk answer with what fail says to each call that match takes, behind the first n of them. It returns
// their number so far, those that failed included. Calls come from several goroutines.
func failBehind(d *crashfs.Disk, n int, match func(crashfs.Op) bool, fail func() error) (calls *atomic.Int64) {
	calls = new(atomic.Int64)
	d.Before(func(op crashfs.Op) error {
		if match(op) && calls.Add(1) > int64(n) {
			return fail()
		}
		return nil
	})
	return calls
}

func diskFails() error { return errDisk }
