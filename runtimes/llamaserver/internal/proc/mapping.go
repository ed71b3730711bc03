package proc

import (
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Mapping is a file that a process has in its memory.
type Mapping struct {
	file string // device and inode, as the system's list of mappings spells them
	Path string // where it lies now
	gone bool   // nowhere any more
}

// gonePath is how Linux spells the path of a file that lies nowhere any more.
const gonePath = " (deleted)"

// parseMapping reads a line of /proc/PID/maps: addresses, rights, offset, device, inode, path.
func ParseMapping(line string) (m Mapping, ok bool) {
	var words [5]string
	rest := strings.TrimSpace(line)
	for i := range words {
		words[i], rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
	}
	path := strings.TrimLeft(rest, " ")
	if !strings.HasPrefix(path, "/") || words[4] == "0" {
		return m, false
	}
	m = Mapping{file: words[3] + " " + words[4]}
	m.Path, m.gone = strings.CutSuffix(path, gonePath)
	return m, true
}

// here reports whether a server's address is on this machine: only then its processes are to be seen.
func Here(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// Held tells which file a server has mapped, of those that lay at a path.
type Held int

const (
	Unknown Held = iota // nobody can tell: the server has read the file and mapped nothing, or somebody else runs it
	OldFile             // the one that it was seen with
	NewFile             // the one that lies there now
)

// HeldOf returns which file of a path is mapped: the old one, whose inode is given, or the one that lies there now.
func HeldOf(mapped []Mapping, path, inode string) Held {
	path = resolved(path)
	has := func(is func(m Mapping) bool) bool { return slices.ContainsFunc(mapped, is) }
	was := inode != "" && has(func(m Mapping) bool { return m.file == inode })
	is := has(func(m Mapping) bool { return m.Path == path && !m.gone && m.file != inode })
	switch {
	case was && !is:
		return OldFile
	case is && !was:
		return NewFile
	}
	return Unknown
}

// InodeAt returns the inode of the mapped file that lies at a path. gone says that only a file is mapped that lay there before.
func InodeAt(mapped []Mapping, path string) (inode string, gone bool) {
	path = resolved(path)
	for _, m := range mapped {
		if m.Path == path {
			if m.gone {
				gone = true
			} else {
				inode = m.file
			}
		}
	}
	return inode, gone && inode == ""
}

// resolved is the path without links, as mappings have it.
func resolved(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	if to, err := filepath.EvalSymlinks(abs); err == nil {
		return to
	}
	return abs
}
