package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize"
)

// The least and most bytes that a store takes and leaves: db.Options has the same.
const (
	leastBudget = 1 << 20
	mostBytes   = 1 << 60
)

// size reads the bytes that a flag gives.
func size(flag, value string, least int64) (int64, error) {
	n, err := humanize.ParseBytes(value)
	if err != nil || n > mostBytes || int64(n) < least {
		return 0, fmt.Errorf("--%s %q: expected a size of %s to %s, such as 8GiB", flag, value, humanize.IBytes(uint64(least)), humanize.IBytes(mostBytes))
	}
	return int64(n), nil
}

// minFree reads what is to be left free, as db.Options.MinFree has it: there 0 stands for what suits the volume, here it is none.
func minFree(value string) (int64, error) {
	switch value {
	case "auto":
		return 0, nil
	case "none":
		return -1, nil
	}
	n, err := size("min-free", value, 0)
	if err != nil {
		return 0, fmt.Errorf("--min-free %q: expected auto, none, or a size of up to %s, such as 1GiB", value, humanize.IBytes(mostBytes))
	}
	if n == 0 {
		return -1, nil
	}
	return n, nil
}

// path reads the folder or file that a flag names. What a shell would have replaced, had it not stood in quotes or behind a =, is not the name of a folder.
func path(flag, value string) (string, error) {
	switch {
	case value == "~" || strings.HasPrefix(value, "~/"):
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("--%s %q: ~ is not known: %w", flag, value, err)
		}
		return filepath.Join(home, value[1:]), nil
	case strings.HasPrefix(value, "~"):
		return "", fmt.Errorf("--%s %q: of ~ only that of this user is known here: write the whole path (or ./%s)", flag, value, value)
	case strings.HasPrefix(value, "$"):
		return "", fmt.Errorf("--%s %q: variables are replaced by a shell, and not in single quotes: write the whole path (or ./%s)", flag, value, value)
	}
	return value, nil
}

// storeDir is where the store is.
func storeDir(dir string) (string, error) {
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("%w: say where the store is to be with --store", err)
		}
		dir = filepath.Join(base, "dormouse", "llama-server")
	}
	dir, err := path("store", dir)
	if err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if file := inTheWay(dir); file != "" {
		return "", fmt.Errorf("--store %q: %s is a file, expected a folder", dir, file)
	}
	return dir, nil
}

// inTheWay is the file that stands where a folder, or one above it, is to be.
func inTheWay(dir string) string {
	for d := dir; ; d = filepath.Dir(d) {
		if info, err := os.Stat(d); err == nil {
			if info.IsDir() {
				return ""
			}
			return d
		}
		if d == filepath.Dir(d) {
			return ""
		}
	}
}

// isFolder refuses what is none.
func isFolder(flag, dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("it is a file, expected a folder")
	}
	if err != nil {
		return fmt.Errorf("--%s %q: %w", flag, dir, err)
	}
	return nil
}
