package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// Report is what Verify found.
type Report struct {
	Damage  []*CorruptError // bytes that are not what was written, in files that are still needed
	Notes   []string        // what is odd and costs nothing: a torn end after a crash, a missing Bloom filter, a strange file
	Files   int
	Bytes   int64 // that were checked
	Records int   // live ones, every byte of each compared with its checksum
}

// VerifyOptions say how Verify goes about it.
type VerifyOptions struct {
	Progress       func(Progress)
	AllowSharedDir bool
}

// Verify reads every byte of every file of a closed store and compares: checksums, the index with the segments, the
// Bloom filter with the index, every block with its prefix. It changes nothing. The error says that it could not be
// done (ErrLocked, no store there, a cancelled context), or names the files that could not be read, and then the report is of
// the others; damage is no error but in the report.
func Verify(ctx context.Context, dir string, o VerifyOptions) (Report, error) {
	return verifyAlone(ctx, dir, Options{ReadOnly: true, AllowSharedDir: o.AllowSharedDir, Logger: slog.New(slog.DiscardHandler)}, o)
}

// verifyAlone opens the store as a reader that keeps writers out.
func verifyAlone(ctx context.Context, dir string, as Options, o VerifyOptions) (Report, error) {
	v := &verifier{o: o}
	as.alone = true
	opened, err := Open(ctx, dir, as)
	var bad *CorruptError
	switch {
	case errors.As(err, &bad) && !errors.Is(err, ErrVersion):
		v.report(bad)
		return v.out, nil
	case err != nil:
		return v.out, err
	}
	defer opened.Close()
	if _, err := opened.enter(); err != nil {
		return v.out, err
	}
	defer opened.leave()
	err = v.run(ctx, opened.eng)
	return v.out, err
}

// Verify is the function Verify for an open store; other work goes on meanwhile. Of a store that is open read-only it looks at what the
// files hold now, and returns ErrLocked while another process writes.
func (s *Store) Verify(ctx context.Context, o VerifyOptions) (Report, error) {
	e, err := s.enter()
	if err != nil {
		return Report{}, err
	}
	defer s.leave()
	if s.o.ReadOnly && !s.o.alone {
		return verifyAlone(ctx, s.dir, s.o, o)
	}
	v := &verifier{o: o}
	err = v.run(ctx, e)
	return v.out, err
}

type verifier struct {
	o        VerifyOptions
	e        *engine
	out      Report
	total    int64
	unsealed []recovery.Leftover // when it began: a checkpoint may write their footers meanwhile
	unread   map[uint64]error    // segments that could not be looked into, which says nothing about their bytes
	missing  map[uint64]*missing
}

func (v *verifier) report(d *damage.Error) { v.out.Damage = append(v.out.Damage, d) }

func (v *verifier) note(format string, args ...any) {
	v.out.Notes = append(v.out.Notes, fmt.Sprintf(format, args...))
}

func (v *verifier) read(n int64) {
	v.out.Bytes += n
	if v.o.Progress != nil {
		v.o.Progress(Progress{What: "verify", Done: v.out.Bytes, Total: max(v.total, v.out.Bytes)})
	}
}

func (v *verifier) run(ctx context.Context, e *engine) error {
	v.e = e
	e.ckptMu.Lock()
	v.unsealed = slices.Clone(e.unsealed)
	e.ckptMu.Unlock()
	lease := e.set.Acquire() // what is evicted meanwhile stays as it is
	defer lease.Release()
	v.total = e.measure()
	for _, s := range e.set.Segments() { // holes are read, too
		v.total += max(0, s.Size-s.Allocated)
	}
	v.files()
	if err := v.log(); err != nil {
		return err
	}
	v.models()
	if err := v.index(ctx); err != nil {
		return err
	}
	live, err := v.entries(ctx)
	if err != nil {
		return err
	}
	if err := v.segments(ctx, live); err != nil {
		return err
	}
	if err := v.bloom(ctx); err != nil {
		return err
	}
	var unread []error
	for _, id := range slices.Sorted(maps.Keys(v.unread)) {
		unread = append(unread, v.unread[id])
	}
	return errors.Join(unread...)
}

// files checks FORMAT, and names what does not belong into the directory.
func (v *verifier) files() {
	e := v.e
	name := e.path(folder.FormatName)
	b, err := vfs.ReadAll(e.fs, name, 1<<16)
	if err == nil {
		v.out.Files++
		v.read(int64(len(b)))
		_, err = folder.Decode(name, b)
	}
	var bad *damage.Error
	if errors.As(err, &bad) {
		v.report(bad)
	} else if err != nil {
		v.report(damage.Wrap(name, 0, "FORMAT", err))
	}
	known := map[string]bool{
		folder.FormatName: true, folder.LockName: true, folder.IndexName: true, folder.BloomName: true, folder.UnsyncedName: true, folder.LogDir: true, folder.SegmentsDir: true, folder.SessionsDir: true,
	}
	for _, check := range []func() error{e.refuseUnsynced, func() error {
		return vfs.CheckOwn(e.fs, e.path(folder.LockName), vfs.IsLock)
	}} {
		if err := check(); errors.Is(err, ErrForeign) {
			v.note("%v", err)
		}
	}
	wal.Strange(e.walOptions(), func(path string, why error) { v.note("%s: %v", path, why) })
	names, _ := e.fs.List(e.path(folder.SegmentsDir))
	for _, n := range names {
		if !segments.Named(n) {
			v.note("%s: not a file of the store", e.path(filepath.Join(folder.SegmentsDir, n)))
		}
	}
	e.ckptMu.Lock() // which leaves no file under a name that it has for a moment
	names, err = e.fs.List(e.dir)
	e.ckptMu.Unlock()
	if err != nil {
		v.note("%v", err)
	}
	for _, n := range names {
		if !known[n] {
			v.note("%s: not a file of the store", e.path(n))
		}
	}
}

// log checks every byte of the log. A torn end is what a crash leaves, and no damage.
func (v *verifier) log() error {
	e := v.e
	e.ckptMu.Lock() // of an open store, no file is removed meanwhile, and nothing appended
	defer e.ckptMu.Unlock()
	e.logMu.Lock()
	defer e.logMu.Unlock()
	if names, err := e.fs.List(e.path(folder.LogDir)); err == nil {
		v.out.Files += len(names)
	}
	return wal.Verify(e.readOptions(), func(d *damage.Error) {
		if errors.Is(d, wal.ErrTorn) {
			v.note("%v", d)
			return
		}
		v.report(d)
	}, v.read)
}

// models unpacks every descriptor.
func (v *verifier) models() {
	for _, m := range v.e.catalog.Models() {
		var bad *damage.Error
		if errors.As(m.Load(), &bad) {
			v.report(bad)
		}
	}
}
