package db

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
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
	v := &verifier{o: o}
	opened, err := Open(ctx, dir, Options{ReadOnly: true, AllowSharedDir: o.AllowSharedDir, Logger: slog.New(slog.DiscardHandler)})
	var bad *CorruptError
	switch {
	case errors.As(err, &bad):
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

// Verify is the function Verify for an open store; other work goes on meanwhile.
func (s *Store) Verify(ctx context.Context, o VerifyOptions) (Report, error) {
	e, err := s.enter()
	if err != nil {
		return Report{}, err
	}
	defer s.leave()
	v := &verifier{o: o}
	err = v.run(ctx, e)
	return v.out, err
}

type verifier struct {
	o        VerifyOptions
	e        *engine
	out      Report
	total    int64
	unsealed []unsealed       // when it began: a checkpoint may write their footers meanwhile
	unread   map[uint64]error // segments that could not be looked into, which says nothing about their bytes
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
	name := e.path(formatName)
	b, err := vfs.ReadAll(e.fs, name, 1<<16)
	if err == nil {
		v.out.Files++
		v.read(int64(len(b)))
		_, err = decodeFormat(name, b)
	}
	var bad *damage.Error
	if errors.As(err, &bad) {
		v.report(bad)
	} else if err != nil {
		v.report(damage.Wrap(name, 0, "FORMAT", err))
	}
	known := map[string]bool{
		formatName: true, lockName: true, indexName: true, bloomName: true, unsyncedName: true, walDir: true, segmentsDir: true, sessionsDir: true,
	}
	for _, check := range []func() error{e.refuseUnsynced, func() error {
		return vfs.CheckOwn(e.fs, e.path(lockName), vfs.IsLock)
	}} {
		if err := check(); errors.Is(err, ErrForeign) {
			v.note("%v", err)
		}
	}
	wal.Strange(e.walOptions(), func(path string, why error) { v.note("%s: %v", path, why) })
	names, _ := e.fs.List(e.path(segmentsDir))
	for _, n := range names {
		if !segments.Named(n) {
			v.note("%s: not a file of the store", e.path(filepath.Join(segmentsDir, n)))
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
	if names, err := e.fs.List(e.path(walDir)); err == nil {
		v.out.Files += len(names)
	}
	return wal.Verify(e.walOptions(), func(d *damage.Error) {
		if errors.Is(d, wal.ErrTorn) {
			v.note("%v", d)
			return
		}
		v.report(d)
	}, v.read)
}

// models unpacks every descriptor.
func (v *verifier) models() {
	v.e.stateMu.RLock()
	defer v.e.stateMu.RUnlock()
	for _, fp := range slices.SortedFunc(maps.Keys(v.e.state.models), func(a, b kv.Fingerprint) int { return bytes.Compare(a[:], b[:]) }) {
		var bad *damage.Error
		if errors.As(v.e.state.models[fp].load(), &bad) {
			v.report(bad)
		}
	}
}

// index checks index.db page by page and row by row.
func (v *verifier) index(ctx context.Context) error {
	e := v.e
	doubts := e.doubts
	if e.wal != nil {
		doubts = nil // it has been rebuilt since
	}
	for _, err := range doubts {
		var bad *damage.Error
		switch {
		case errors.Is(err, ErrForeign): // not to be opened for writing
			v.report(damage.Wrap(e.path(indexName), 0, "index", err))
		case errors.As(err, &bad):
			v.report(bad)
			v.out.Files++
		default:
			v.note("index.db will be rebuilt: %v", err)
		}
	}
	if e.wal == nil { // else they were left out, and that is done
		v.lost(e.gone)
	}
	if len(doubts) > 0 {
		return nil
	}
	v.out.Files++
	return e.ix.Verify(ctx, v.report, v.read)
}

// entries checks that every record that the index names is where it says, is what it says, and has its prefix.
func (v *verifier) entries(ctx context.Context) (live map[opLoc]namedRecord, err error) {
	e := v.e
	view := e.view()
	defer view.Release()
	live = map[opLoc]namedRecord{}
	var checked int
	err = view.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		live[toOpLoc(x.Loc)] = namedRecord{x.Key, int(x.Tokens)}
		v.entry(view, x)
		checked++
		return ctx.Err() == nil
	})
	v.out.Records = checked
	if isIndexDamage(err) {
		var bad *damage.Error
		if errors.As(err, &bad) {
			v.report(bad)
		}
		err = nil
	}
	if err == nil {
		err = ctx.Err()
	}
	return live, err
}

func (v *verifier) entry(view *index.View, x index.Entry) {
	need := x.Parent
	if x.Group > 0 {
		need = x.Key
	}
	if x.Group > 0 || x.First > 0 {
		if _, ok, err := view.Get(need, 0); err == nil && !ok {
			v.report(damage.New(v.e.path(indexName), 0, "prefix of block "+x.Key.String(), "stored: "+need.String(), "not stored"))
		}
	}
	err := v.e.set.Read(segLoc(x.Loc), func(r *segments.Record) error {
		same := r.Key() == x.Key && r.Group() == x.Group && r.Parent() == x.Parent && r.Model() == x.Model &&
			r.Scope() == x.Scope && r.First() == x.First && r.TokenCount() == int(x.Tokens)
		if !same {
			return damage.New(r.File(), x.Loc.Offset, "record",
				fmt.Sprintf("block %s group %d at token %d", x.Key, x.Group, x.First),
				fmt.Sprintf("block %s group %d at token %d", r.Key(), r.Group(), r.First()))
		}
		return nil
	})
	var bad *damage.Error
	switch {
	case err == nil:
	case errors.Is(err, segments.ErrDestroyed):
		v.report(damage.New(v.e.segmentPath(x.Loc.Segment), x.Loc.Offset, "record header", "block "+x.Key.String(), "zeros"))
	case !errors.As(err, &bad):
		v.skip(x.Loc.Segment, err)
	case !errors.Is(err, ErrCorrupt) || bad.What == "record":
		v.report(bad)
	default: // segments.Verify names the byte
	}
}

// segments checks every byte of every segment. What is dead is not looked into.
func (v *verifier) segments(ctx context.Context, live map[opLoc]namedRecord) error {
	e := v.e
	seen := map[opLoc]bool{}
	for _, s := range e.set.Segments() {
		v.out.Files++
		err := e.set.Verify(ctx, s.ID, func(l segments.Loc) bool {
			loc := toOpLoc(indexLoc(l))
			_, ok := live[loc]
			seen[loc] = seen[loc] || ok
			return ok
		}, func(d *damage.Error) {
			// Of a segment that was finished, nothing takes the header; and without index.db, nobody knows that nothing lived there.
			lost := d.What == segments.HeaderName && e.wal == nil && len(e.doubts) > 0
			if errors.Is(d, segments.ErrRemains) && !lost || v.unfinished(s.ID, d.Offset) {
				v.note("%v", d)
				return
			}
			v.report(d)
		}, v.read)
		var bad *damage.Error
		isBad := errors.As(err, &bad)
		if errors.Is(err, segments.ErrMissing) {
			v.out.Files-- // if nothing lives in it, it was unlinked since it was listed: no lease keeps a segment that was dead before
			if isBad && holds(live, s.ID) {
				v.miss(s.ID, bad.Err)
			}
		} else if isBad {
			v.report(bad)
		} else if err != nil {
			if ctx.Err() != nil {
				return err
			}
			v.skip(s.ID, err)
		}
	}
	reported := map[string]bool{}
	for _, d := range v.out.Damage {
		reported[fmt.Sprint(d.File, d.Offset)] = true
	}
	var absent []absentRecord
	for loc, x := range live {
		if file := v.e.segmentPath(loc.Segment); !seen[loc] && v.unread[loc.Segment] == nil && !reported[fmt.Sprint(file, loc.Offset)] {
			absent = append(absent, absentRecord{loc, x})
			if v.gone(loc.Segment) {
				v.out.Records--
			}
		}
	}
	v.lost(absent)
	v.reportMissing()
	return nil
}

// skip keeps why a segment, or a record in it, could not be read.
func (v *verifier) skip(segment uint64, err error) {
	if v.unread == nil {
		v.unread = map[uint64]error{}
	}
	if v.unread[segment] == nil {
		v.unread[segment] = err
	}
}

// holds reports whether a live record lies in a segment.
func holds(live map[opLoc]namedRecord, segment uint64) bool {
	for loc := range live {
		if loc.Segment == segment {
			return true
		}
	}
	return false
}

// headerLeast is what the header of a segment takes at least.
const headerLeast = 4096

// unfinished reports whether off lies where an earlier process was still writing, or where destruction is decided and not
// yet done: no rot, but what a crash leaves.
func (v *verifier) unfinished(id uint64, off int64) bool {
	for _, u := range v.unsealed {
		if u.id == id && (off >= u.end || u.from == 0 && off < headerLeast) {
			return true
		}
	}
	v.e.stateMu.RLock()
	defer v.e.stateMu.RUnlock()
	if _, gone := v.e.state.doomedSegments[id]; gone {
		return true
	}
	for l := range v.e.state.doomed {
		if l.Segment == id && l.Offset <= off && off < l.Offset+l.Length {
			return true
		}
	}
	return false
}

// bloom checks the filter's bytes, and that it denies nothing that is stored.
func (v *verifier) bloom(ctx context.Context) error {
	e := v.e
	e.bloomLoad.wait()
	e.ckptMu.Lock()
	b, lsn, err := index.ReadBloom(e.fs, e.path(bloomName), e.format.UUID)
	current := e.bloomLSN == lsn && e.bloom.Load() != nil
	e.ckptMu.Unlock()
	var bad *damage.Error
	switch {
	case errors.As(err, &bad):
		v.out.Files++
		v.report(bad)
		return nil
	case errors.Is(err, index.ErrMissing), errors.Is(err, fs.ErrNotExist):
		v.note("%s: missing; it will be rebuilt", e.path(bloomName))
		return nil
	case errors.Is(err, ErrForeign): // not to be opened for writing
		v.report(damage.Wrap(e.path(bloomName), 0, "Bloom filter", err))
		return nil
	case err != nil:
		v.note("%s: %v; it will be rebuilt", e.path(bloomName), err)
		return nil
	}
	v.out.Files++
	v.read(int64(b.Bits() / 8))
	if !current {
		v.note("%s: covers the log up to frame %d; it will be rebuilt", e.path(bloomName), lsn)
		return ctx.Err()
	}
	var view index.View
	filter := e.look(&view) // one that is built meanwhile does not know what is removed now
	defer view.Release()
	err = view.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		if x.Group == 0 && filter != nil && !filter.MayContain(x.Key) {
			v.report(damage.New(e.path(bloomName), 0, "Bloom filter", "maybe for block "+x.Key.String(), "no"))
		}
		return ctx.Err() == nil
	})
	if isIndexDamage(err) {
		return nil // reported already
	}
	if err == nil {
		err = ctx.Err() // the walk may have ended early
	}
	return err
}
