package db

import (
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// badLogFS fails to sync the log while bad is set.
type badLogFS struct {
	vfs.FS
	bad *atomic.Bool
}

type badLogFile struct {
	vfs.File
	bad *atomic.Bool
}

func (f badLogFS) Open(name string, readOnly bool) (vfs.File, error) {
	file, err := f.FS.Open(name, readOnly)
	if err != nil || !strings.HasSuffix(filepath.Dir(name), walDir) {
		return file, err
	}
	return badLogFile{file, f.bad}, nil
}

func (f badLogFile) Sync() error {
	if f.bad.Load() {
		return errors.New("the disk is gone")
	}
	return f.File.Sync()
}

// In Power mode a model is in the store when that is durable, also for who asks for it while another call registers it.
func TestModelOfAnotherCallIsDurable(t *testing.T) {
	var bad atomic.Bool
	o := options()
	o.Durability, o.fs = Power, badLogFS{vfs.OS, &bad}
	s, err := Open(ctx, t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Register(ctx, plain()); err != nil {
		t.Fatal(err)
	}
	bad.Store(true)
	if _, err := s.Register(ctx, windowed(16)); err == nil { // it is known now, and its frame not durable
		t.Fatal("the log cannot be synced")
	}
	if _, err := s.Register(ctx, windowed(16)); err == nil {
		t.Error("a model was acknowledged whose frame is not durable")
	}
	if _, err := s.Register(ctx, plain()); err != nil { // reads go on
		t.Error(err)
	}
}
