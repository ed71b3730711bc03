package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// Report is what Run found: db.Report.
type Report struct {
	Damage  []*damage.Error // bytes that are not what was written, in files that are still needed
	Notes   []string        // what is odd and costs nothing: a torn end after a crash, a missing Bloom filter, a strange file
	Files   int
	Bytes   int64 // that were checked
	Records int   // live ones, every byte of each compared with its checksum
}

// Run reads every byte of every file of an open store and compares. Damage is no error but in the report; the error names the files that
// could not be read. progress may be nil.
func Run(ctx context.Context, e *engine.Engine, progress func(engine.Progress)) (Report, error) {
	v := newVerifier(e, progress)
	err := v.run(ctx)
	return v.out, err
}

type verifier struct {
	e        *engine.Engine
	progress func(engine.Progress)
	out      Report
	total    int64
	unsealed []recovery.Leftover // when it began: a checkpoint may seal them meanwhile
	unread   map[uint64]error    // segments that could not be looked into, which says nothing about their bytes
	missing  map[uint64]bool     // segments that were reported

	unreadSessions []error // of sessions that could not be read
	foreignBloom   bool    // a refusal names the Bloom filter's file
}

func newVerifier(e *engine.Engine, progress func(engine.Progress)) *verifier {
	return &verifier{e: e, progress: progress, unread: map[uint64]error{}, missing: map[uint64]bool{}}
}

func (v *verifier) report(d *damage.Error) { v.out.Damage = append(v.out.Damage, d) }

func (v *verifier) note(format string, args ...any) {
	v.out.Notes = append(v.out.Notes, fmt.Sprintf(format, args...))
}

func (v *verifier) read(n int64) {
	v.out.Bytes += n
	if v.progress != nil {
		v.progress(engine.Progress{What: "verify", Done: v.out.Bytes, Total: max(v.total, v.out.Bytes)})
	}
}

func (v *verifier) run(ctx context.Context) error {
	if err := v.records(ctx); err != nil {
		return err
	}
	v.refusals()
	if err := v.bloom(ctx); err != nil {
		return err
	}
	if err := v.sessions(ctx); err != nil {
		return err
	}
	return v.unreadFiles()
}

// records is all but the Bloom filter and the sessions.
func (v *verifier) records(ctx context.Context) error {
	e := v.e
	v.unsealed = e.Leftovers()
	lease := e.Segments.Acquire() // what is evicted meanwhile stays as it is
	defer func() { lease.Release(); v.passedBy() }()
	v.total = e.Measure()
	for _, s := range e.Segments.Segments() { // holes are read, too
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
	return v.segments(ctx, live)
}

// passedBy has the worker destroy what waited for the verifier.
func (v *verifier) passedBy() {
	if v.e.Segments.Ripe() {
		v.e.Signal()
	}
}

// unreadFiles is the error that names what could not be read.
func (v *verifier) unreadFiles() error {
	unread := v.unreadSessions
	for _, id := range slices.Sorted(maps.Keys(v.unread)) {
		unread = append(unread, v.unread[id])
	}
	return errors.Join(unread...)
}

// files checks FORMAT, and names what does not belong into the directory.
func (v *verifier) files() {
	e := v.e
	name := e.Path(folder.FormatName)
	b, err := vfs.ReadAll(e.FS, name, 1<<16)
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
	if err := vfs.CheckOwn(e.FS, e.Path(folder.LockName), vfs.IsLock); errors.Is(err, vfs.ErrForeign) {
		v.note("%v", err)
	}
	wal.Strange(e.LogOptions(), func(path string, why error) { v.note("%s: %v", path, why) })
	names, _ := e.FS.List(e.Path(folder.SegmentsDir))
	for _, n := range names {
		if !segments.Named(n) {
			v.note("%s: not a file of the store", e.Path(filepath.Join(folder.SegmentsDir, n)))
		}
	}
	e.BetweenCheckpoints(func() { names, err = e.FS.List(e.Dir) }) // it leaves no file under a name that it has for a moment
	if err != nil {
		v.note("%v", err)
	}
	for _, n := range names {
		if !known[n] {
			v.note("%s: not a file of the store", e.Path(n))
		}
	}
}

// refusals reports what would keep the store from being opened for writing. What the index and the log say of themselves is reported with them.
func (v *verifier) refusals() {
	v.e.BetweenCheckpoints(func() {
		for _, r := range v.e.Refusals() {
			v.report(damage.Wrap(r.File, r.Offset, r.What, r.Err))
			v.foreignBloom = v.foreignBloom || r.File == v.e.Path(folder.BloomName)
		}
	})
}

// log checks every byte of the log. A torn end is what a crash leaves, and no damage.
func (v *verifier) log() error {
	e := v.e
	var err error
	e.HoldLog(func() {
		if names, err := e.FS.List(e.Path(folder.LogDir)); err == nil {
			v.out.Files += len(names)
		}
		err = wal.Verify(e.ReadLogOptions(), func(d *damage.Error) {
			if errors.Is(d, wal.ErrTorn) {
				v.note("%v", d)
				return
			}
			v.report(d)
		}, v.read)
	})
	return err
}

// models unpacks every descriptor.
func (v *verifier) models() {
	for _, m := range v.e.Catalog.Models() {
		var bad *damage.Error
		if errors.As(m.Load(), &bad) {
			v.report(bad)
		}
	}
}
