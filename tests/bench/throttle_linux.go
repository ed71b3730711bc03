package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// blkio is where version 1 of control groups limits what processes read of a disk.
const blkio = "/sys/fs/cgroup/blkio"

// throttle makes a group of processes for which the disk that a folder lies on reads so many MB/s at most. end removes it.
func throttle(dir string, rate int) (group string, end func(), err error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", nil, err
	}
	if group, err = os.MkdirTemp(blkio, "dormouse-bench-"); err != nil {
		return "", nil, fmt.Errorf("needs root and blkio.throttle of control groups, version 1: %w", err)
	}
	limit := fmt.Sprintf("%d:%d %d", unix.Major(st.Dev), unix.Minor(st.Dev), rate*1_000_000)
	if err := os.WriteFile(filepath.Join(group, "blkio.throttle.read_bps_device"), []byte(limit), 0); err != nil {
		return "", nil, fmt.Errorf("%w (removing the group: %v)", err, os.Remove(group))
	}
	return group, func() { os.Remove(group) }, nil
}

// join has this process be one of a group.
func join(group string) error {
	return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(fmt.Sprint(os.Getpid())), 0)
}
