package check

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/tally"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// Run returns what it found in an open store. It reads every byte of every file and compares. Damage is in the report; the error names the
// files that could not be read. progress may be nil.
func Run(ctx context.Context, e *engine.Engine, progress func(tally.Progress)) (Report, error) {
	v := newVerifier(e, progress)
	err := v.run(ctx)
	return v.out, err
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

// records checks everything but the Bloom filter and the sessions. What is evicted meanwhile keeps its bytes.
func (v *verifier) records(ctx context.Context) error {
	e := v.e
	v.unsealed = e.Checkpoints.Leftovers()
	lease := e.Segments.Acquire()
	defer func() { lease.Release(); v.passedBy() }()
	v.total = e.Budget.Measure()
	for _, s := range e.Segments.Segments() { // the check reads holes, too
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

// files checks FORMAT and names what does not belong into the directory.
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
	e.BetweenCheckpoints(func() { names, err = e.FS.List(e.Dir) }) // a checkpoint has temporary files
	if err != nil {
		v.note("%v", err)
	}
	for _, n := range names {
		if !known[n] {
			v.note("%s: not a file of the store", e.Path(n))
		}
	}
}

// refusals reports why the store cannot be opened for writing. The steps for index and log report their own reasons.
func (v *verifier) refusals() {
	v.e.BetweenCheckpoints(func() {
		for _, r := range v.e.Refusals() {
			v.report(damage.Wrap(r.File, r.Offset, r.What, r.Err))
			v.foreignBloom = v.foreignBloom || r.File == v.e.Path(folder.BloomName)
		}
	})
}

// log checks every byte of the log. A crash may leave a torn end: that is no damage.
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
