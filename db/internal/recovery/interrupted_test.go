package recovery_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A rebuild of the index that did not come to its end, twice, costs nothing: what only the old index knew (the log is lost)
// is there when a third one does. What was deleted and still waited to be destroyed does not come back.
func TestInterruptedRebuild(t *testing.T) {
	for name, interrupt := range map[string]func(t *testing.T, dir string) string{
		"cancelled": func(t *testing.T, dir string) string {
			stop, cancel := context.WithCancel(t.Context())
			o := storetest.Options()
			o.Progress = func(db.Progress) { cancel() }
			if s, err := db.Open(stop, dir, o); err == nil {
				s.Close()
				t.Fatal("opened with a cancelled context")
			}
			return dir
		},
		"killed": func(t *testing.T, dir string) string {
			image := ""
			o := storetest.Options()
			o.Progress = func(db.Progress) { image = storetest.Copy(t, dir) }
			storetest.Crash(storetest.Open(t, dir, o))
			return image
		},
		"killed when it was open": func(t *testing.T, dir string) string {
			storetest.Crash(storetest.Open(t, dir, storetest.Options()))
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := storetest.Open(t, dir, storetest.Options())
			m := storetest.Model(t, s, crashtest.Plain())
			kept, gone := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, kv.Prompt{Tokens: crashtest.Tokens(2, 64)}
			storetest.Put(t, m, kept)
			storetest.Put(t, m, gone)
			storetest.OK(t, m.SetRef(t.Context(), "kept", kept, db.RefOptions{Pinned: true}))
			reader := storetest.Match(t, m, gone)
			storetest.Must(m.Delete(t.Context(), gone.Prefix(16)))(t)
			storetest.OK(t, s.Checkpoint(t.Context())) // into the index
			dir = storetest.Copy(t, dir)               // killed while somebody still reads what was deleted
			reader.Close()
			storetest.OK(t, os.RemoveAll(filepath.Join(dir, storetest.LogDir)))
			for range 2 {
				dir = interrupt(t, dir)
			}
			s = storetest.Open(t, dir, storetest.Options())
			m = storetest.Model(t, s, crashtest.Plain())
			storetest.Expect(t, m, kept, 64)
			storetest.Expect(t, m, gone, 0)
			if r, err := s.Ref("kept"); err != nil || !r.Pinned {
				t.Errorf("ref after an interrupted rebuild: %+v, %v", r, err)
			}
		})
	}
}
