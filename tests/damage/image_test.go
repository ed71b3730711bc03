package damage

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// image is what lies in a directory: contents by name, with slashes.
type image map[string][]byte

// read reads a directory into memory.
func read(t testing.TB, dir string) image {
	t.Helper()
	im := image{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) { // of a store that is open
			return nil
		}
		im[filepath.ToSlash(name)] = b
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return im
}

func (im image) names() []string {
	var out []string
	for name := range im {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// lay makes dir hold im and nothing else. Zeros at the end of a file stay a hole.
func (im image) lay(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, sub := range []string{"wal", "segments"} {
		path := filepath.Join(dir, sub)
		if info, err := os.Lstat(path); err == nil && !info.IsDir() {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for _, sub := range []string{"", "wal", "segments"} {
		there, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			return err
		}
		for _, e := range there {
			name := e.Name()
			if sub != "" {
				name = sub + "/" + name
			} else if name == "wal" || name == "segments" {
				continue
			}
			if info, err := e.Info(); err == nil && info.Mode() == 0o600 && im[name] != nil {
				continue // the others are not what they were
			}
			if err := os.RemoveAll(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
				return err
			}
		}
	}
	for name, b := range im {
		if err := write(filepath.Join(dir, filepath.FromSlash(name)), b); err != nil {
			return err
		}
	}
	return nil
}

// write replaces the contents of a file. It is cut to nothing first, so that what was mapped of it does not matter.
func write(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	end := lastByte(b) + 1
	if end > 0 {
		_, err = f.Write(b[:end])
	}
	if err == nil && end < len(b) {
		err = f.Truncate(int64(len(b)))
	}
	return errors.Join(err, f.Close())
}

var zeros [4096]byte

// lastByte is where the last byte lies that is not zero.
func lastByte(b []byte) int {
	for bytes.HasSuffix(b, zeros[:]) {
		b = b[:len(b)-len(zeros)]
	}
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != 0 {
			return i
		}
	}
	return -1
}
