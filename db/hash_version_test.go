package db

import (
	"bytes"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"
)

// A store whose keys an earlier release made with another hash is refused, by whoever opens it, and stays as it is: nothing would be
// found in it, and nothing deleted. Without FORMAT its segments say so.
func TestStoreOfAnotherHash(t *testing.T) {
	for _, lost := range []string{"nothing", formatName} {
		dir := filepath.Join(t.TempDir(), "store")
		files := readZip(t, "testdata/hash-1-store.zip")
		if lost == formatName {
			delete(files, formatName)
		}
		if err := files.write(dir); err != nil {
			t.Fatal(err)
		}
		before, err := readDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		readOnly := options()
		readOnly.ReadOnly = true
		for what, do := range map[string]func() error{
			"open":      func() error { _, err := Open(ctx, dir, options()); return err },
			"read-only": func() error { _, err := Open(ctx, dir, readOnly); return err },
			"verify":    func() error { _, err := Verify(ctx, dir, VerifyOptions{}); return err },
			"repair": func() error {
				_, err := Repair(ctx, dir, filepath.Join(t.TempDir(), "new"), RepairOptions{})
				return err
			},
		} {
			if err := do(); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "use the release that wrote it") {
				t.Errorf("without %s: %s: %v", lost, what, err)
			}
		}
		after, err := readDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		delete(before, lockName)
		delete(after, lockName)
		if !maps.EqualFunc(before, after, bytes.Equal) {
			t.Errorf("without %s: the store was changed", lost)
		}
	}
}
