package db

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A rebuild of the index that did not come to its end, twice, costs nothing: what only the old index knew (the log is lost)
// is there when a third one does. What was deleted and still waited to be destroyed does not come back.
func TestInterruptedRebuild(t *testing.T) {
	for name, interrupt := range map[string]func(t *testing.T, dir string) string{
		"cancelled": func(t *testing.T, dir string) string {
			stop, cancel := context.WithCancel(ctx)
			o := options()
			o.Progress = func(Progress) { cancel() }
			if s, err := Open(stop, dir, o); err == nil {
				s.Close()
				t.Fatal("opened with a cancelled context")
			}
			return dir
		},
		"killed": func(t *testing.T, dir string) string {
			image := ""
			o := options()
			o.Progress = func(Progress) { image = copyStore(t, dir) }
			crash(open(t, dir, o))
			return image
		},
		"killed when it was open": func(t *testing.T, dir string) string {
			crash(open(t, dir, options()))
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, options())
			m := model(t, s, plain())
			kept, gone := kv.Prompt{Tokens: tokens(1, 64)}, kv.Prompt{Tokens: tokens(2, 64)}
			put(t, m, kept)
			put(t, m, gone)
			if err := m.SetRef(ctx, "kept", kept, RefOptions{Pinned: true}); err != nil {
				t.Fatal(err)
			}
			reader, err := m.Match(ctx, gone, MatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Delete(ctx, gone.Prefix(16)); err != nil {
				t.Fatal(err)
			}
			if err := s.Checkpoint(ctx); err != nil { // into the index
				t.Fatal(err)
			}
			dir = copyStore(t, dir) // killed while somebody still reads what was deleted
			reader.Close()
			if err := os.RemoveAll(filepath.Join(dir, walDir)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				dir = interrupt(t, dir)
			}
			s = open(t, dir, options())
			m = model(t, s, plain())
			expect(t, m, kept, 64)
			expect(t, m, gone, 0)
			if r, err := s.Ref("kept"); err != nil || !r.Pinned {
				t.Errorf("ref after an interrupted rebuild: %+v, %v", r, err)
			}
		})
	}
}
