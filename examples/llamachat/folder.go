//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/examples/command"
)

// folder is where the store is, or is going to be.
type folder struct {
	store, memo string
	missing     bool // it is not there yet
	fresh       bool // it is missing or empty: what will be in it is this run's
	noMemo      bool
}

// look says whether the folder can be used, before minutes are spent, and changes nothing where no store is.
func look(ctx context.Context, store string) (f folder, err error) {
	f = folder{store: store, memo: memo(store)}
	entries, err := os.ReadDir(store)
	f.missing = errors.Is(err, fs.ErrNotExist)
	f.fresh = f.missing || err == nil && len(entries) == 0
	_, memoErr := os.Lstat(f.memo)
	f.noMemo = errors.Is(memoErr, fs.ErrNotExist)
	if !f.fresh {
		s, err := db.Open(ctx, store, db.Options{})
		switch {
		case errors.Is(err, db.ErrNotEmpty):
			return f, command.Wrong("-store: %w; expected a new or empty folder, or the store of an earlier run", err)
		case err != nil:
			return f, fmt.Errorf("-store: %w", err)
		}
		return f, s.Close()
	}
	there := store
	for parent := filepath.Dir(there); missing(there) && parent != there; parent = filepath.Dir(there) {
		there = parent
	}
	try, err := os.MkdirTemp(there, ".llamachat-")
	if err != nil {
		return f, fmt.Errorf("-store: nothing can be written there: %w", err)
	}
	return f, os.Remove(try)
}

// leaveNothing removes what this run made, if that is a store without a block. It is called after a failure.
func (f folder) leaveNothing(ctx context.Context) error {
	if !f.fresh {
		return nil
	}
	entries, err := os.ReadDir(f.store)
	if err == nil && len(entries) > 0 {
		s, err := db.Open(ctx, f.store, db.Options{ReadOnly: true})
		if err != nil {
			return err
		}
		stats, err := s.Stats()
		if err = errors.Join(err, s.Close()); err != nil || stats.Blocks > 0 {
			return err
		}
	}
	err = nil
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(f.store, e.Name())))
	}
	if f.missing && !missing(f.store) {
		err = errors.Join(err, os.Remove(f.store))
	}
	if f.noMemo && !missing(f.memo) {
		err = errors.Join(err, os.Remove(f.memo))
	}
	return err
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// memo is the file beside the store that remembers the hashes of the model file.
func memo(store string) string { return store + ".memo" }
