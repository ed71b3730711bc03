package proc

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// MappedBy lists the files that the server at an address has mapped, with those of its child processes. Another user's processes show none.
func MappedBy(u *url.URL) (out []Mapping) {
	if !Here(u) {
		return nil
	}
	pid := listening(Listener(u))
	if pid == 0 {
		return nil
	}
	for _, p := range withChildren(pid) {
		f, err := os.Open("/proc/" + strconv.Itoa(p) + "/maps")
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if m, ok := ParseMapping(lines.Text()); ok {
				out = append(out, m)
			}
		}
		f.Close()
	}
	return out
}

// listening is the process that has a socket; 0: it is not to be seen.
func listening(inode string) int {
	if inode == "" {
		return 0
	}
	want := "socket:[" + inode + "]"
	for _, pid := range processes() {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		d, err := os.Open(dir)
		if err != nil {
			continue
		}
		names, _ := d.Readdirnames(-1)
		d.Close()
		for _, name := range names {
			if to, err := os.Readlink(filepath.Join(dir, name)); err == nil && to == want {
				return pid
			}
		}
	}
	return 0
}

func processes() (out []int) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// withChildren is a process and all that it has started: a router has a server for each model.
func withChildren(pid int) []int {
	children := map[int][]int{}
	for _, p := range processes() {
		if w := statOf(p); len(w) > 1 {
			if parent, err := strconv.Atoi(w[1]); err == nil {
				children[parent] = append(children[parent], p)
			}
		}
	}
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i]]...)
	}
	return out
}

// StartedAs returns the command line and the environment of the server at an address; nil if the system does not tell.
func StartedAs(u *url.URL) (command, environ []string) {
	if !Here(u) {
		return nil, nil
	}
	pid := listening(Listener(u))
	if pid == 0 {
		return nil, nil
	}
	words := func(name string) []string {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + name)
		if err != nil || len(b) == 0 {
			return nil
		}
		return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
	}
	return words("cmdline"), words("environ")
}

// statOf is what /proc/PID/stat says behind the program's name: state, parent, …
func statOf(pid int) []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
}

// startTicks is how coarse the times are by which the start of a process is known. In so short a time none opens its model.
const startTicks = 30 * time.Millisecond

// StartOf returns when the server at an address was started, if the system tells.
func StartOf(u *url.URL) (time.Time, bool) {
	if !Here(u) {
		return time.Time{}, false
	}
	w := statOf(listening(Listener(u)))
	up, err := os.ReadFile("/proc/uptime")
	if len(w) < 20 || err != nil {
		return time.Time{}, false
	}
	var since float64
	if _, err := fmt.Sscan(string(up), &since); err != nil {
		return time.Time{}, false
	}
	ticks, err := strconv.ParseFloat(w[19], 64) // hundredths of a second since the system was started
	if err != nil {
		return time.Time{}, false
	}
	return time.Now().Add(startTicks - time.Duration((since-ticks/100)*float64(time.Second))), true
}
