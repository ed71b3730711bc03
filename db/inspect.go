package db

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// Identity is what FORMAT says about a store.
type Identity struct {
	Version uint32
	UUID    string
}

// Identity returns the store's format version and id.
func (s *Store) Identity() (Identity, error) {
	e, err := s.enter()
	if err != nil {
		return Identity{}, err
	}
	defer s.leave()
	return Identity{Version: e.Format.Version, UUID: e.Format.UUID.String()}, nil
}

// ScopeID returns the id that a scope of that name has in this store. Names are not stored, and ids differ from store to store.
func (s *Store) ScopeID(name string) (kv.ScopeID, error) {
	e, err := s.enter()
	if err != nil {
		return kv.ScopeID{}, err
	}
	defer s.leave()
	return e.Hasher.Scope(name), nil
}

// LogFile is one file of the write-ahead log.
type LogFile struct {
	ID                uint64
	FirstLSN, LastLSN uint64
	Bytes             int64 // allocated
	Torn              bool  // it ends in what a crash left
}

func (s *Store) log(ctx context.Context) ([]LogFile, error) {
	e, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer s.leave()
	var rec wal.Recovered
	e.HoldLog(func() {
		for range 10 {
			rec, err = wal.Replay(e.ReadLogOptions(), func(wal.Frame) error { return ctx.Err() })
			if !errors.Is(err, fs.ErrNotExist) { // a process that writes removes what its checkpoint has
				break
			}
		}
	})
	if err != nil {
		return nil, err
	}
	var out []LogFile
	writing := e.Overtaken() // then a frame at the end may be half written
	for _, f := range rec.Files {
		out = append(out, LogFile{ID: f.ID, FirstLSN: f.FirstLSN, LastLSN: f.LastLSN, Bytes: f.Bytes, Torn: f.Torn && !writing})
	}
	return out, nil
}

// Tombstone is a record that is out of the index and whose bytes are not yet known to be destroyed.
type Tombstone struct {
	Segment uint64
	Offset  int64
	Bytes   int64
}

func (s *Store) tombstones() ([]Tombstone, error) {
	e, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer s.leave()
	var out []Tombstone
	for _, l := range e.Catalog.Tombstones() {
		out = append(out, Tombstone{Segment: l.Segment, Offset: l.Offset, Bytes: l.Length})
	}
	return out, nil
}

// IndexProblems says why index.db was not used at Open and had to be rebuilt; empty if it was.
func (s *Store) IndexProblems() []error {
	e, err := s.enter()
	if err != nil {
		return nil
	}
	defer s.leave()
	return e.Doubts
}

// Expired reports whether the ref's time is over.
func (r Ref) Expired(now time.Time) bool { return !r.Expires.IsZero() && r.Expires.Before(now) }

// LostFormat says what is wrong with the file FORMAT of the store in dir, where the store can be opened nevertheless: a
// segment's header repeats what was in it. Opening the store for writing restores the file; opening it read-only does
// not. The answer is nil if FORMAT is sound. The error is what Open would say of a directory that holds no store, or one
// that it cannot open.
func LostFormat(dir string) (why, err error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	_, restored, err := folder.Read(vfs.OS, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, folder.NoStoreError(dir)
	case err != nil || !restored:
		return nil, err
	}
	_, why = folder.ReadFile(vfs.OS, dir)
	return why, nil
}
