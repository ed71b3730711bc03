package repair

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Options are db.RepairOptions.
type Options struct {
	Progress       func(engine.Progress)
	AllowSharedDir bool
	FS             vfs.FS // of the damaged store
}

// Repaired is db.Repaired: what was saved, and what it could not.
type Repaired struct {
	Blocks, Records int   // in the new store
	Bytes           int64 // of the records
	Models, Refs    int
	Sessions        int // in the new store, the sound frames of damaged ones among them

	Lost         []LostRecord    // by file and offset
	LostRefs     []LostRef       // by name
	LostSessions []LostSession   // by file
	Damage       []*damage.Error // what else is damaged or cannot be read: FORMAT, index, log, a segment's header, whole files
	Unknown      string          // what may be missing, or may be back, without any file that could tell; empty if nothing
	Notes        []string        // what is odd and costs no record, ref or deletion
}

// ErrPrefixLost is the reason for which a sound record, or a ref, is left out: a block before it is lost.
var ErrPrefixLost = errors.New("its prefix is lost")

// LostRecord is a record that Repair could not save. Of one whose header is broken, and which neither index nor log names,
// only File, Offset and Err are known.
type LostRecord struct {
	File   string
	Offset int64
	Bytes  int64

	Block     kv.Key // zero if nothing tells
	Group     int
	Model     kv.Fingerprint
	ModelName string // empty if the descriptor is lost
	First     int    // position of the block's first token
	Tokens    int

	// Prefix is set if the record itself is sound: the nearest block before it that is lost. Without its prefix, nothing can
	// find it or use it.
	Prefix kv.Key
	Err    error // a *damage.Error, or that the prefix or the descriptor is lost
}

// LostRef is a ref whose prefix could not be saved.
type LostRef struct {
	Ref oplog.Ref
	Err error
}

// LostSession is a session of which not all could be saved.
type LostSession struct {
	Scope  kv.ScopeID
	File   string
	Offset int64 // from here on it is lost
	Frames int   // before that, which were saved
	Err    error
}

// Run saves what is sound of the store in from, in a new one in to: db.Repair.
func Run(ctx context.Context, from, to string, o Options) (out Repaired, err error) {
	if from, err = filepath.Abs(from); err != nil {
		return out, err
	}
	if to, err = filepath.Abs(to); err != nil {
		return out, err
	}
	if err := folder.Prepare(vfs.OS, from, true, o.AllowSharedDir); err != nil {
		return out, err
	}
	if err := folder.CheckFiles(from, o.AllowSharedDir, slog.New(slog.DiscardHandler)); err != nil {
		return out, err
	}
	w := newDamagedStore(from, o, &out)
	lock, err := w.lock()
	if err != nil {
		return out, err
	}
	if lock != nil {
		defer lock.Release()
	}
	target, err := newTarget(from, to)
	if err != nil {
		return out, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, target.abandon())
			out = Repaired{}
		}
	}()
	if err := w.open(ctx); err != nil {
		return out, err
	}
	defer w.e.Abandon()
	if err := w.copyTo(ctx, target.building); err != nil {
		return out, err
	}
	w.report()
	return out, target.commit()
}

// lock takes the lock of the damaged store, as every reader does. A store without LOCK, or with something else of that name,
// is one that no process has open.
func (w *damagedStore) lock() (*vfs.Lock, error) {
	name := filepath.Join(w.dir, folder.LockName)
	if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	lock, err := vfs.ShareLock(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return lock, err
}
