package modelfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"github.com/dormousekv/dormouse/internal/gguf"
)

// Stamp changes when one of a model's files does. Where there are inodes it is device, inode, size, and times of modification and of change of each file.
type Stamp string

// StampOf is the stamp of a model's files now, all parts if it is split. It reads none of them.
func StampOf(path string) (Stamp, error) {
	id, err := modelID(path)
	return Stamp(id), err
}

// OnlyStatus reports whether at most the times of change differ: names, owners and rights changed, or the contents under a time of modification that was set back. Their hash
// tells which.
func (s Stamp) OnlyStatus(now Stamp) bool { return s.first(4) == now.first(4) }

// SameFiles reports whether they are the files that they were, whatever is in them now.
func (s Stamp) SameFiles(now Stamp) bool { return s.first(2) == now.first(2) }

// first are the first n fields of each file, where there are five.
func (s Stamp) first(n int) string {
	parts := strings.Split(string(s), "+")
	for i, part := range parts {
		if fields := strings.Split(part, ":"); len(fields) == 5 {
			parts[i] = strings.Join(fields[:n], ":")
		}
	}
	return strings.Join(parts, "+")
}

// Mapped is a model's files as they can be found again among what a process has mapped.
type Mapped struct {
	stamp Stamp
	paths []string // without symbolic links
}

// MappedAs notes the files that a path leads to now.
func MappedAs(path string) Mapped {
	stamp, err := StampOf(path)
	paths, also := gguf.Splits(path)
	if err != nil || also != nil {
		return Mapped{}
	}
	for i, p := range paths {
		if p, err = filepath.Abs(p); err == nil {
			p, err = filepath.EvalSymlinks(p)
		}
		if err != nil {
			return Mapped{}
		}
		paths[i] = p
	}
	return Mapped{stamp, paths}
}

// Still reports whether this process has all of them mapped, though the path leads to others now, or to none: whoever changes those does not change these. Where the system does not
// tell (all but Linux), or the model was not mapped, it says no.
func (m Mapped) Still(now Stamp) bool {
	if len(m.paths) == 0 || m.stamp.SameFiles(now) {
		return false
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return false
	}
	for i, part := range strings.Split(string(m.stamp), "+") {
		fields := strings.Split(part, ":")
		if len(fields) != 5 || !mapsHave(maps, fields[1], m.paths[i]) {
			return false
		}
		if there, err := fileID(m.paths[i]); err == nil && Stamp(part).SameFiles(Stamp(there)) && !Stamp(part).OnlyStatus(Stamp(there)) {
			return false // it is still there under its name, and was changed
		}
	}
	return true
}

// mapsHave reports whether a line of maps has the inode under that path, or under none any more.
func mapsHave(maps []byte, inode, path string) bool {
	for line := range bytes.Lines(maps) {
		line = bytes.TrimSpace(line)
		name, found := bytes.CutSuffix(line, []byte(" "+path))
		if !found {
			name, found = bytes.CutSuffix(line, []byte(" "+path+" (deleted)"))
		}
		if fields := bytes.Fields(name); found && len(fields) == 5 && string(fields[4]) == inode {
			return true
		}
	}
	return false
}
