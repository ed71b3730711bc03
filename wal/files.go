package wal

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	suffix = ".wal"
	// spareName does not end in ".wal": whatever a crash leaves under it is no part of the log.
	spareName = "next.wal.tmp"
)

func (o Options) path(id uint64) string { return filepath.Join(o.Dir, fmt.Sprintf("%016x", id)+suffix) }
func (o Options) sparePath() string     { return filepath.Join(o.Dir, spareName) }

// list returns the ids of the log files, ascending.
func (o Options) list() ([]uint64, error) {
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("list the log files: %w", err)
	}
	var ids []uint64
	for _, name := range names {
		if id, ok := parseName(name); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
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
