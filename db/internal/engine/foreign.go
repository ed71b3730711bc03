package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/wal"
)

// Refusal is why a store is not opened for writing, though it can be read: a file of it proves to be somebody else's, or another release wrote it.
type Refusal struct {
	File   string
	Offset int64
	What   string
	Err    error
}

// look is a look at a file with a name of ours, before anything is changed.
type look struct {
	file, what string
	look       func() error
}

// looks are those of a writer. The index and the log see to their own files themselves.
func (e *Engine) looks() []look {
	return []look{
		{e.Path(folder.BloomName), "Bloom filter", e.checkBloom},
		{e.Path(folder.UnsyncedName), "mark of an fsync that failed", e.checkUnsynced},
	}
}

// refuseForeign returns vfs.ErrForeign if a file with a name of ours proves to be somebody else's.
func (e *Engine) refuseForeign() error {
	for _, l := range e.looks() {
		if err := l.look(); err != nil {
			return err
		}
	}
	return nil
}

// Refusals are all that a writer would refuse, of a store that is open: for who reports it.
func (e *Engine) Refusals() (all []Refusal) {
	format := e.Path(folder.FormatName)
	if err := e.checkFeatures(); err != nil {
		all = append(all, Refusal{format, folder.ReadOnlyAt, "features", err})
	}
	looks := append(e.looks(), look{e.Path(folder.IndexName + ".tmp"), "index that is written anew", func() error { return index.CheckTemporary(e.indexOptions()) }})
	if _, err := folder.ReadFile(e.FS, e.Dir); err != nil { // it is written anew
		tmp := format + ".tmp"
		looks = append(looks, look{tmp, "FORMAT that is written anew", func() error { return e.checkOwn(tmp, folder.IsFormat) }})
		if errors.Is(err, fs.ErrNotExist) {
			looks = append(looks, e.unproven()...)
		}
	}
	for _, l := range looks {
		if err := l.look(); err != nil && !slices.ContainsFunc(all, func(r Refusal) bool { return r.File == l.file }) {
			all = append(all, Refusal{File: l.file, What: l.what, Err: err})
		}
	}
	return all
}

// checkFeatures refuses what this release may only read.
func (e *Engine) checkFeatures() error {
	if e.Format.ReadOnly == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w: features %#x can only be read by this release", e.Path(folder.FormatName), vfs.ErrVersion, e.Format.ReadOnly)
}

// checkBloom refuses what would be replaced. A folder is done without, a link leads to nothing of ours.
func (e *Engine) checkBloom() error {
	if err := index.ForeignBloom(e.FS, e.Path(folder.BloomName), e.Format.UUID); err != nil {
		return err
	}
	if info, err := e.FS.Stat(e.Path(folder.BloomName)); err == nil && !info.Regular && !info.Link && !info.Dir {
		return fmt.Errorf("%s: %w: %w", e.Path(folder.BloomName), vfs.ErrForeign, vfs.ErrNotRegular)
	}
	return nil
}

// checkUnsynced is for the file that is removed in the end: it must be empty, or what was the Bloom filter.
func (e *Engine) checkUnsynced() error {
	return e.checkOwn(e.Path(folder.UnsyncedName), e.isBloom)
}

func (e *Engine) isBloom(head []byte) bool { return index.IsBloom(head, e.Format.UUID) }

// checkOwn is vfs.CheckOwn of what need not be there.
func (e *Engine) checkOwn(path string, ours func(head []byte) bool) error {
	err := vfs.CheckOwn(e.FS, path, ours)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// refuseUnproven is refuseForeign where FORMAT is not there to say that the directory is a store.
func (e *Engine) refuseUnproven() error {
	for _, l := range e.unproven() {
		if err := l.look(); err != nil {
			return err
		}
	}
	return nil
}

// unproven are the looks without FORMAT: each file must say for itself that it is the store's, but for the segments, of which one has said so.
func (e *Engine) unproven() []look {
	name, bloom := e.Path(folder.IndexName), e.Path(folder.BloomName)
	return []look{
		{name, "index", func() error {
			ours, err := index.Whose(e.indexOptions())
			switch {
			case err == nil && !ours:
				return fmt.Errorf("%s: %w: nothing in it says that it is the store's, and there is no FORMAT", name, vfs.ErrForeign)
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, vfs.ErrNotRegular):
				return nil
			}
			return err
		}},
		{bloom, "Bloom filter", func() error { return e.checkOwn(bloom, e.isBloom) }},
		{e.Path(folder.LogDir), "log", func() error { return wal.Unproven(e.LogOptions()) }},
	}
}
