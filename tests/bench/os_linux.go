package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropCache has the kernel forget a file's pages. They must be clean and in no map, or it keeps them.
func dropCache(f *os.File) error {
	if err := f.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// hugePages is n bytes, at most 2 MiB, that lie in one huge page where the system gives it. They are never given back.
func hugePages(n int) ([]byte, error) {
	const size = 2 << 20
	b, err := unix.Mmap(-1, 0, 2*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	at := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (size - 1)
	b = b[at : at+size]
	unix.Madvise(b, unix.MADV_HUGEPAGE) // where it is refused, the pages are small
	return b[:n], nil
}

// residentBytes is how much of a file is in the page cache, asked with mincore.
func residentBytes(f *os.File, size int64) (int64, error) {
	if size == 0 {
		return 0, nil
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(m)
	page := os.Getpagesize()
	in := make([]byte, (len(m)+page-1)/page)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&in[0]))); errno != 0 {
		return 0, errno
	}
	var n int64
	for _, b := range in {
		n += int64(b&1) * int64(page)
	}
	return min(n, size), nil
}

// openDirect opens a file for reading around the page cache.
func openDirect(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
}

// memoryBacked reports whether a folder's files are in memory anyway.
func memoryBacked(dir string) (bool, error) {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	return st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC, err
}

// writeBack returns when nothing that a file system holds waits to be written to its disk.
func writeBack(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// syncData makes a file's bytes durable.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

const syncDataName = "fdatasync"

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	fields := strings.Fields(string(text))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

func processorName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range bytes.Lines(text) {
		if key, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// processorTime is what all processors have worked for this process, in user and in system mode.
func processorTime() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// residentSet is what this process has in memory.
func residentSet() (r residence, err error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return r, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		var kib float64
		fmt.Sscan(value, &kib)
		switch name {
		case "RssAnon":
			r.Own = kib / 1024
		case "RssFile", "RssShmem":
			r.Files += kib / 1024
		}
	}
	return r, nil
}

// systemObjects are what this process has of maps, open files and threads.
func systemObjects() (maps, descriptors, threads int, err error) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, 0, 0, err
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, 0, 0, err
	}
	tasks, err := os.ReadDir("/proc/self/task")
	return bytes.Count(text, []byte{'\n'}), len(files), len(tasks), err
}
