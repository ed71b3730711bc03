package modelfile

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Stamp is what the system says of a file: what is in the file cannot change, and no other file can take its place, without another stamp.
type Stamp struct {
	Path    string
	File    string // device and inode; where there are none, a hash of the path
	Written string // size, and time of modification: who writes the bytes may set it back
	Changed string // time of change, which nobody can set back; empty where there is none
	Links   string // the symbolic links that lead from the path to the file
}

// Change is how much of a stamp another one has changed.
type Change int

const (
	Unchanged Change = iota
	Touched          // the same file with the same size and time of modification: its mode, a name of it, or a link to it
	Rewritten        // the same file, and somebody has written to it
	Another          // another file lies there, or none
)

// Since is what has happened to a file since it had another stamp.
func (s Stamp) Since(before Stamp) Change {
	switch {
	case s.File != before.File || s.File == "":
		return Another
	case s.Written != before.Written:
		return Rewritten
	case s.Changed != before.Changed || s.Links != before.Links:
		return Touched
	}
	return Unchanged
}

// StampOf looks at a file. Of one that is not there, or cannot be looked at, the stamp says nothing but the path.
func StampOf(path string) Stamp {
	s, err := stampOf(path)
	if err != nil {
		return Stamp{Path: path}
	}
	s.Links = links(path)
	return s
}

// ChangedAfter reports whether the file, or a name of it, changed after a time. Where the system does not tell, it says no.
func (s Stamp) ChangedAfter(t time.Time) bool {
	nanos, err := strconv.ParseInt(s.Changed, 10, 64)
	return err == nil && time.Unix(0, nanos).After(t)
}

// id is the stamp as the memo spells it.
func (s Stamp) id() string {
	id := s.File + ":" + s.Written
	if s.Changed != "" {
		id += ":" + s.Changed
	}
	return id
}

// maxLinks is how many links in a row a path may have: as many as Linux follows.
const maxLinks = 40

// links names the symbolic links on the way to a file, with what changes when one of them is made anew.
func links(path string) string {
	var out []string
	path, err := filepath.Abs(path)
	for range maxLinks {
		if err != nil {
			break
		}
		link := ""
		for at := path; at != filepath.Dir(at); at = filepath.Dir(at) { // the outermost link is followed first
			if info, err := os.Lstat(at); err == nil && info.Mode()&os.ModeSymlink != 0 {
				link = at
			}
		}
		if link == "" {
			break
		}
		var to string
		if to, err = os.Readlink(link); err == nil {
			out = append(out, link+">"+to+":"+linkID(link))
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(link), to)
			}
			path = filepath.Join(to, strings.TrimPrefix(path, link))
		}
	}
	return strings.Join(out, " ")
}
