package engine_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Files that stay open are made longer by reserving blocks, never by a write: for that, XFS gives a file as much again as it has, 64 KiB or
// more, until it is closed. No budget has room for that.
func TestNoWriteMakesAFileLonger(t *testing.T) {
	o := storetest.Options()
	o.SegmentBytes = 64 << 10
	var writes atomic.Int64
	disk := storetest.Failing(func(c storetest.Call) error {
		if c.Kind != "write" || strings.HasSuffix(c.Name, ".tmp") || strings.HasSuffix(c.Name, folder.LockName) {
			return nil
		}
		info, err := vfs.OS.Stat(c.Name)
		if err == nil && c.Off+c.N > info.Size {
			err = fmt.Errorf("a write of %d bytes at %d, into a file of %d", c.N, c.Off, info.Size)
			t.Errorf("%s: %v", c.Name, err)
		}
		if c.InSegments() || c.InLog() {
			writes.Add(1)
		}
		return err
	})
	s := storetest.OpenOn(t, disk, t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	for i := range 100 {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i, 32+i)})
		if i%20 == 0 {
			storetest.OK(t, s.Checkpoint(t.Context()))
		}
	}
	storetest.OK(t, s.Close())
	if n := writes.Load(); n < 300 {
		t.Errorf("%d writes: this test shows little", n)
	}
}
