package proc

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Sandbox says in words which namespaces keep the process at an address from a folder of this one. It is empty if none is seen.
func Sandbox(u *url.URL, folder string) string {
	words := listenerWords(u)
	if words == nil {
		return ""
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err != nil || to != "socket:["+words[9]+"]" {
			continue
		}
		proc := filepath.Dir(filepath.Dir(fd))
		other := func(ns string) bool {
			theirs, err := os.Readlink(proc + "/ns/" + ns)
			ours, e := os.Readlink("/proc/self/ns/" + ns)
			return err == nil && e == nil && theirs != ours
		}
		var why []string
		if other("pid") {
			why = append(why, "it is in another PID namespace")
		}
		if other("user") {
			why = append(why, "it is in another user namespace")
		}
		if there, err := os.Stat(proc + "/root" + folder); other("mnt") {
			if here, e := os.Stat(folder); err != nil || e != nil || !os.SameFile(here, there) {
				why = append(why, "it has other mounts, and does not see that folder")
			}
		}
		if why != nil {
			return strings.Join(why, "; ") + " (process " + filepath.Base(proc) + ")"
		}
		return ""
	}
	return ""
}
