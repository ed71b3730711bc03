package main

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// seconds is the processor time that f takes: what else this machine is doing does not count.
func seconds(f func() error) (float64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var from, to unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &from); err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	if err := f(); err != nil {
		return 0, err
	}
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &to); err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	return float64(to.Nano()-from.Nano()) / 1e9, nil
}
