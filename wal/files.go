package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dormousekv/dormouse/internal/vfs"
)

const (
	suffix = ".wal"
	// spareName does not end in ".wal": whatever a crash leaves under it is no part of the log.
	spareName = "next.wal.tmp"
)

func (o Options) path(id uint64) string { return filepath.Join(o.Dir, fmt.Sprintf("%016x", id)+suffix) }
func (o Options) sparePath() string     { return filepath.Join(o.Dir, spareName) }

// freeSpare returns the path that the spare has, or may have: a file of somebody else under its name stays as it is, and the spare gets
// another one. What an earlier run reserved is taken before a new name is. left are further spares of earlier runs: nobody needs them.
func (o Options) freeSpare(spares []string) (path string, left []string, err error) {
	var last error
	found := false
	for i := range 9 {
		name := spareName
		if i > 0 {
			name = fmt.Sprintf("next%d.wal.tmp", i)
		}
		there := slices.Contains(spares, name)
		if !there && path != "" {
			continue
		}
		at := filepath.Join(o.Dir, name)
		switch err := o.checkSpare(at); { // one that cannot be read is met when it is used
		case errors.Is(err, ErrForeign):
			last = err
		case there && found:
			if err == nil {
				left = append(left, at)
			}
		case there || path == "":
			path, found = at, there
		}
	}
	if path == "" {
		return "", nil, fmt.Errorf("wal: %w", last)
	}
	return path, left, nil
}

// checkSpare returns ErrForeign if what has the name of a spare is somebody else's. A log file, and what [Log.Donate] was given, have the
// UUID in one place; of a log file's head a power cut may have left no more than the first bytes.
func (o Options) checkSpare(path string) error {
	own := string(appendHeader(nil, fileHeader{uuid: o.UUID})[:32])
	return vfs.CheckOwn(o.FS, path, func(head []byte) bool {
		return vfs.Begins(head, own) || len(head) >= 32 && [16]byte(head[16:32]) == o.UUID
	})
}

// Strange says of each name in the folder what makes it somebody else's, if something does; the log leaves such files alone.
func Strange(o Options, say func(path string, why error)) {
	o = o.withDefaults()
	names, _ := o.FS.List(o.Dir)
	for _, name := range names {
		path := filepath.Join(o.Dir, name)
		if !Named(name) {
			say(path, errors.New("not a file of the log"))
		} else if _, ok := parseName(name); !ok {
			if err := o.checkSpare(path); errors.Is(err, ErrForeign) {
				say(path, err)
			}
		}
	}
}

// Named reports whether a file of that name, in the folder of the log, is the log's.
func Named(name string) bool {
	_, ok := parseName(name)
	return ok || strings.HasPrefix(name, "next") && strings.HasSuffix(name, ".wal.tmp")
}

// list returns the ids of the log files, ascending.
func (o Options) list() ([]uint64, error) {
	ids, _, err := o.files()
	return ids, err
}

// files returns the ids of the log files, ascending, and the names that spares have or may have.
func (o Options) files() (ids []uint64, spares []string, err error) {
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("list the log files: %w", err)
	}
	for _, name := range names {
		if id, ok := parseName(name); ok {
			ids = append(ids, id)
		} else if Named(name) {
			spares = append(spares, name)
		}
	}
	slices.Sort(ids)
	return ids, spares, nil
}

// parseName accepts exactly the names that path makes.
func parseName(name string) (uint64, bool) {
	hex, ok := strings.CutSuffix(name, suffix)
	if !ok || len(hex) != 16 || strings.ToLower(hex) != hex {
		return 0, false
	}
	id, err := strconv.ParseUint(hex, 16, 64)
	return id, err == nil && id != 0
}
