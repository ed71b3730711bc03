package wal

import (
	"errors"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// noOpen is a file system on which nothing can be opened while short is set.
type noOpen struct {
	vfs.FS
	short *bool
}

func (f noOpen) Open(name string, readOnly bool) (vfs.File, error) {
	if *f.short {
		return nil, syscall.EMFILE
	}
	return f.FS.Open(name, readOnly)
}

// A log that cannot begin for want of file handles begins when there are some: no fsync has failed.
func TestBeginsWhenThereAreFilesAgain(t *testing.T) {
	m := newMemFS()
	log := must[*Log](t)(Create(memOptions(m), 1, 1, nil))
	must[uint64](t)(log.Append(2, []byte("first")))
	short := true
	o := memOptions(noOpen{m.kill(), &short})
	log = must[*Log](t)(CreateLater(o, 2, 2, func() []byte { return nil }))
	if _, err := log.Append(2, []byte("second")); !errors.Is(err, syscall.EMFILE) || log.Err() != nil {
		t.Fatalf("%v, %v", err, log.Err())
	}
	short = false
	must[uint64](t)(log.Append(2, []byte("second")))
	if err := log.Close(); err != nil {
		t.Error(err)
	}
}
