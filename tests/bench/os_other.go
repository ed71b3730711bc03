//go:build !linux

package main

import (
	"errors"
	"os"
	"runtime"
	"time"
)

var errLinuxOnly = errors.New("written for Linux only: posix_fadvise, mincore and O_DIRECT are needed")

func dropCache(*os.File) error                     { return errLinuxOnly }
func residentBytes(*os.File, int64) (int64, error) { return 0, errLinuxOnly }
func openDirect(string) (*os.File, error)          { return nil, errLinuxOnly }
func hugePages(int) ([]byte, error)                { return nil, errLinuxOnly }
func memoryBacked(string) (bool, error)            { return false, errLinuxOnly }
func residentSet() (residence, error) {
	return residence{}, errors.New("read from /proc, on Linux only")
}
func throttle(string, int) (group string, end func(), err error) { return "", nil, errLinuxOnly }
func join(string) error                                          { return errLinuxOnly }
func systemObjects() (maps, descriptors, threads int, err error) {
	return 0, 0, 0, errors.New("read from /proc, on Linux only")
}
func processorTime() (time.Duration, error) {
	return 0, errors.New("read with getrusage, on Linux only")
}

// syncData makes a file's bytes durable.
func syncData(f *os.File) error { return f.Sync() }

const syncDataName = "fsync"

func loadAverage() string   { return "unknown" }
func processorName() string { return runtime.GOARCH }

// writeBack does nothing here: the two runs that it is to make alike differ by what an earlier one left to be written.
func writeBack(string) error { return nil }
