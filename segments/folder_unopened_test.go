package segments

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// A folder that cannot be opened to be synced poisons nothing, because no fsync has failed. The next Sync syncs it, and so does the next
// Reclaim, which calls nothing destroyed before.
func TestFolderCannotBeOpened(t *testing.T) {
	s, f, _ := faultySet(t)
	synced := 0
	unopened := func(op, _ string) error {
		if op == "syncdir" {
			return fmt.Errorf("%w: too many open files", vfs.ErrNotSynced)
		}
		return nil
	}
	opened := func(op, _ string) error {
		if op == "syncdir" {
			synced++
		}
		return nil
	}
	loc := makeBlock(1, 1, 9000).append(t, s, 1)
	f.set(unopened)
	for range 2 {
		if err := s.Sync(); !errors.Is(err, vfs.ErrNotSynced) || s.Err() != nil {
			t.Fatalf("sync: %v, poisoned: %v", err, s.Err())
		}
	}
	f.set(opened)
	if err := s.Sync(); err != nil || synced != 1 {
		t.Fatalf("sync: %v, the folder was synced %d times", err, synced)
	}
	s.Destroy([]Loc{loc})
	s.Unlink(loc.Segment)
	f.set(unopened)
	for range 2 {
		done, err := s.Reclaim(t.Context())
		if pending, _ := s.Pending(); !errors.Is(err, vfs.ErrNotSynced) || len(done) > 0 || pending != 1 || s.PendingUnlinks() != 1 || s.Err() != nil {
			t.Fatalf("reclaim: %v, %d done, %d pending, poisoned: %v", err, len(done), pending, s.Err())
		}
	}
	f.set(opened)
	done, err := s.Reclaim(t.Context())
	if pending, _ := s.Pending(); err != nil || len(done) != 1 || pending+s.PendingUnlinks() != 0 || synced != 2 {
		t.Fatalf("reclaim: %v, %d done, %d pending, the folder was synced %d times", err, len(done), pending, synced)
	}
	makeBlock(1, 2, 9000).append(t, s, 1)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
