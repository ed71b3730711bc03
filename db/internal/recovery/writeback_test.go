package recovery_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// backFS has files that write back, and fails that for those below a folder.
type backFS struct {
	vfs.FS
	calls atomic.Int32
	sick  atomic.Pointer[string]
}

func (d *backFS) Create(name string) (vfs.File, error) { return d.file(d.FS.Create(name)) }
func (d *backFS) Open(name string, readOnly bool) (vfs.File, error) {
	return d.file(d.FS.Open(name, readOnly))
}

func (d *backFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &backFile{f, d}, nil
}

type backFile struct {
	vfs.File
	d *backFS
}

func (f *backFile) WriteBack() error {
	f.d.calls.Add(1)
	if sick := f.d.sick.Load(); sick != nil && strings.Contains(f.Name(), *sick) {
		return errDisk
	}
	return nil
}

// What fails to be written back is not reported by the fsync behind it: it poisons the store as that would, and nothing is acknowledged.
func TestFailedWriteBackPoisons(t *testing.T) {
	for _, sick := range []string{storetest.SegmentsDir, storetest.LogDir} {
		disk := crashtest.NewDisk(crashtest.NewDirs(t).Next())
		d := &backFS{FS: disk}
		o := storetest.Options()
		o.Durability, o.Inside.FS = db.Power, d
		s := storetest.Must(db.Open(t.Context(), disk.Dir(), o))(t)
		m := storetest.Model(t, s, crashtest.Plain())
		kept := kv.Tokens(crashtest.Tokens(1, 64)...)
		storetest.Put(t, m, kept)
		if d.calls.Load() < 2 {
			t.Fatalf("%d files were written back", d.calls.Load())
		}
		d.sick.Store(&sick)
		p := kv.Tokens(crashtest.Tokens(2, 64)...)
		for range 2 {
			_, err := m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, 64), db.PutOptions{})
			if !errors.Is(err, db.ErrPoisoned) || !errors.Is(err, errDisk) {
				t.Errorf("%s: put: %v", sick, err)
			}
		}
		d.sick.Store(nil)
		s.Close()
		s = storetest.Must(db.Open(t.Context(), disk.Dir(), o))(t)
		m = storetest.Model(t, s, crashtest.Plain())
		storetest.Expect(t, m, kept, 64)
		storetest.Put(t, m, p)
		storetest.Expect(t, m, p, 64)
		storetest.OK(t, s.Close())
	}
}
