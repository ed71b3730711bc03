package engine

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/db/internal/folder"
)

// End leaves the files as finish does, and lets go of them as letGo does. An index.db that is found damaged on the way is removed: the
// next open rebuilds it from segments and log, which have everything, and must be durable for that. The caller holds the lock.
func (e *Engine) End(ctx context.Context, letGo func() error) error {
	err := e.finish(ctx)
	if !IsIndexDamage(err) {
		return errors.Join(err, letGo())
	}
	e.log.Error("index is damaged; the next open rebuilds it", "dir", e.Dir, "error", err)
	saved := errors.Join(e.Sync(), letGo())
	if rerr := e.FS.Remove(e.Path(folder.IndexName)); rerr != nil {
		e.log.Error("damaged index could not be removed", "dir", e.Dir, "error", rerr)
		return errors.Join(err, saved)
	}
	return saved
}

// Halt stops the background work and waits for it.
func (e *Engine) Halt() {
	e.again.Drop()
	close(e.stop)
	<-e.done
	e.bloomLoad.wait()
}

// Close lets go of every file.
func (e *Engine) Close() error {
	e.ring.Free()
	err := e.letGoSessions()
	if e.wal != nil {
		err = errors.Join(err, e.wal.Close())
	}
	return errors.Join(err, e.Index.Close(), e.Segments.Close(), e.unlock())
}
