package admin

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/inside"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// RepairOptions say how Repair goes about it.
type RepairOptions struct {
	Progress func(db.Progress)
	// AllowSharedDir accepts directories that other users can write to.
	AllowSharedDir bool
	// Inside is for tests: the disk of the damaged store.
	Inside inside.Options
}

// ErrPrefixLost is the reason for which [Repair] leaves out a sound record, or a ref: a block before it is lost.
var ErrPrefixLost = errors.New("its prefix is lost")

// Repaired says what Repair saved, and what it could not.
type Repaired struct {
	Blocks, Records int   // in the new store
	Bytes           int64 // of the records
	Models, Refs    int
	Sessions        int // in the new store, damaged ones of which it has the beginning among them

	Lost         []LostRecord       // by file and offset
	LostRefs     []LostRef          // by name
	LostSessions []LostSession      // by file
	Damage       []*db.CorruptError // what else is damaged or cannot be read: FORMAT, index, log, a segment's header, whole files
	Unknown      string             // what may be missing, or may be back, without any file that could tell; empty if nothing
	Notes        []string           // what is odd and costs no record, ref or deletion
}

// Whole reports whether everything was saved, as far as the files can tell.
func (r *Repaired) Whole() bool {
	return len(r.Lost) == 0 && len(r.LostRefs) == 0 && len(r.LostSessions) == 0 && r.Unknown == ""
}

// LostBytes is what the lost records occupied, as far as it is known.
func (r *Repaired) LostBytes() (n int64) {
	for i := range r.Lost {
		n += r.Lost[i].Bytes
	}
	return n
}

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
	Err    error // a *db.CorruptError, or that the prefix or the descriptor is lost
}

// LostRef is a ref whose prefix could not be saved.
type LostRef struct {
	Ref db.Ref
	Err error
}

// LostSession is a session of which Repair could not save all: the frames before the damage are in the new store.
type LostSession struct {
	Scope  kv.ScopeID
	File   string
	Offset int64 // from here on it is lost
	Frames int   // before that, which were saved
	Err    error // a *db.CorruptError
}

// Repair saves what is sound of the damaged store in the directory from: it makes a new store in the directory to, which
// must be missing or empty, and copies every record whose bytes, and whose prefix, are as they were written, with the models
// and the refs that they still support, and every session up to where it is damaged. What was deleted stays deleted as far as index or log still say so. It changes
// nothing in from, and works from a read-only medium. The new store has another UUID and the same hash seed, so that prompts
// have the keys that they had.
//
// An index.db that is damaged costs recency only, as far as the log is sound: records come from the segments. Where both are
// lost, refs are lost, and what was deleted and not yet destroyed is back; Repaired.Unknown says so.
//
// The error says that it could not be done: ErrLocked, ErrNotEmpty, ErrVersion, ErrUnsafeDir, ErrNoSpace, fs.ErrNotExist
// where there is no store, ErrForeign where FORMAT or a log file is another store's, ErrCorrupt where FORMAT and the headers of
// all segments are lost, a cancelled context. Then there is no new store, and nothing of it is left. What is lost is no error but
// in the report. Until it is whole, the new store is in to.repair: a process that is killed leaves that.
func Repair(ctx context.Context, from, to string, o RepairOptions) (out Repaired, err error) {
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
	w := newDamagedStore(o.Inside.Disk(), from, o, &out)
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

// refOf is a ref as db shows it.
func refOf(r oplog.Ref) db.Ref {
	return db.Ref{
		Name: r.Name, Model: r.Model, Block: r.Block, Tokens: r.Tokens, Pinned: r.Pinned, Priority: r.Priority,
		Expires: r.Expires, Set: r.Set, Meta: r.Meta, Trail: r.Trail,
	}
}
