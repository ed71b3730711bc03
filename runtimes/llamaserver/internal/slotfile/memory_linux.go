package slotfile

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// memoryPlaces are the folders that lie in memory and may take a folder of slot files, the usual ones first.
func memoryPlaces() (places []string) {
	uid := strconv.Itoa(os.Getuid())
	usual := []string{"/dev/shm", os.Getenv("XDG_RUNTIME_DIR"), "/run/user/" + uid, os.TempDir(), "/tmp", "/run", "/run/lock", "/var/tmp"}
	for _, dir := range append(usual, memoryMounts()...) {
		if !slices.Contains(places, dir) && filepath.IsAbs(dir) && unix.Access(dir, unix.W_OK|unix.X_OK) == nil && inMemory(dir) {
			places = append(places, dir)
		}
	}
	return places
}

// memoryMounts are where file systems of memory are mounted: the fifth word of a line of mountinfo is where, and the first behind the - is its kind.
func memoryMounts() (dirs []string) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		words := strings.Fields(before)
		if kind, _, _ := strings.Cut(after, " "); len(words) < 5 || kind != "tmpfs" && kind != "ramfs" {
			continue
		}
		dir := unescape(words[4])
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || slices.ContainsFunc([]string{"/dev", "/sys", "/proc"}, func(not string) bool {
			return dir == not || strings.HasPrefix(dir, not+"/") // the system's own, with masks of what a container is not to see
		}) {
			continue
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// unescape undoes what mountinfo does to blanks: \040.
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// inMemory reports whether what lies in a folder is in memory, as far as the kernel says so.
func inMemory(dir string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false
	}
	return uint32(st.Type) == unix.TMPFS_MAGIC || uint32(st.Type) == unix.RAMFS_MAGIC
}

// linksWork reports whether a link to a descriptor of this process leads there. Without /proc, or with that of another PID namespace, it leads
// nowhere, or to a file of somebody else.
var linksWork = sync.OnceValue(func() bool {
	file, target, err := memory()
	if err != nil {
		return false
	}
	defer file.Close()
	here, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(target)
	return err == nil && os.SameFile(here, there)
})

// memory makes a file of memory, and says where this process has it in /proc. Its number is a high one, and random: a server in another PID namespace,
// where the number of this process is that of another, finds nothing there. With a low one it would write over that one's files.
func memory() (file *os.File, target string, err error) {
	low, err := unix.MemfdCreate("dormouse-slot", unix.MFD_CLOEXEC)
	if err != nil { // an old kernel, or one that forbids it
		return nil, "", err
	}
	fd := low
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		most := int(min(limit.Cur, 1<<16))
		if high, err := unix.FcntlInt(uintptr(low), unix.F_DUPFD_CLOEXEC, most/2+rand.IntN(max(1, most/4))); err == nil {
			unix.Close(low)
			fd = high
		}
	}
	target = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	return os.NewFile(uintptr(fd), target), target, nil
}

// linkToMemory makes memory with a name: a link to the descriptor of a memfd. The server opens the link as it would a file.
func linkToMemory(path string) (*os.File, error) {
	file, target, err := memory()
	if err != nil {
		return nil, err
	}
	if err := os.Symlink(target, path); err != nil { // a file system without links
		file.Close()
		return nil, err
	}
	return file, nil
}
