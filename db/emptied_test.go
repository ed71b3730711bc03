package db

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A segment that was emptied, or whose header is gone, is damage, though the index that named its records be lost: the log says that the
// segment was whole before.
func TestEmptiedSegmentWithoutIndex(t *testing.T) {
	closed := smallStore(t)
	killed := t.TempDir()
	s := open(t, killed, options())
	put(t, model(t, s, plain()), tinyPrompts()[0])
	crash(s)
	for what, dir := range map[string]string{"closed": closed, "killed": killed} {
		segs, err := filepath.Glob(filepath.Join(dir, segmentsDir, "*.seg"))
		if err != nil || len(segs) == 0 {
			t.Fatal(segs, err)
		}
		for _, path := range segs {
			for how, harm := range map[string]func(string) error{
				"emptied": func(p string) error { return os.Truncate(p, 0) },
				"zeroed": func(p string) error {
					info, err := os.Stat(p)
					if err != nil {
						return err
					}
					return os.WriteFile(p, make([]byte, info.Size()), 0o600)
				},
			} {
				for _, index := range []bool{true, false} {
					at := copyStore(t, dir)
					seg := filepath.Join(at, segmentsDir, filepath.Base(path))
					if err := harm(seg); err != nil {
						t.Fatal(err)
					}
					if !index {
						if err := os.Remove(filepath.Join(at, indexName)); err != nil {
							t.Fatal(err)
						}
					}
					r, err := Verify(ctx, at, VerifyOptions{})
					if err != nil || !slices.ContainsFunc(r.Damage, func(d *CorruptError) bool { return d.File == seg }) {
						t.Errorf("%s, %s %s, index %t: Verify: %v, %v, %v", what, filepath.Base(path), how, index, r.Damage, r.Notes, err)
					}
				}
			}
		}
	}
}
