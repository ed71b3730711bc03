package modelfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"github.com/dormousekv/dormouse/internal/gguf"
)

// Stamps are those of a model's files, all parts if it is split.
type Stamps []Stamp

// StampsOf looks at a model's files. It reads none of them.
func StampsOf(path string) (out Stamps, err error) {
	paths, err := gguf.Splits(path)
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		s := StampOf(p)
		if s.File == "" {
			_, err := os.Stat(p)
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// Since is the most that has happened to one of the files.
func (s Stamps) Since(before Stamps) Change {
	if len(s) != len(before) || len(s) == 0 {
		return Another
	}
	most := Unchanged
	for i := range s {
		most = max(most, s[i].Since(before[i]))
	}
	return most
}

// Mapped is a model's files as they can be found again among what a process has mapped.
type Mapped struct {
	stamps Stamps
	paths  []string // without symbolic links
}

// MappedAs notes the files that a path leads to now.
func MappedAs(path string) (m Mapped) {
	m.stamps, _ = StampsOf(path)
	for _, s := range m.stamps {
		p, err := filepath.Abs(s.Path)
		if err == nil {
			p, err = filepath.EvalSymlinks(p)
		}
		if err != nil {
			return Mapped{}
		}
		m.paths = append(m.paths, p)
	}
	return m
}

// Still reports whether this process has all of them mapped, though the path leads to others now, or to none: whoever changes those does not change these. Where the system does not
// tell (all but Linux), or the model was not mapped, it says no.
func (m Mapped) Still(now Stamps) bool {
	if len(m.paths) == 0 || now.Since(m.stamps) != Another {
		return false
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return false
	}
	for i, s := range m.stamps {
		_, inode, found := strings.Cut(s.File, ":")
		if !found || !mapsHave(maps, inode, m.paths[i]) || StampOf(m.paths[i]).Since(s) == Rewritten { // or it is still there, and was changed
			return false
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
