package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Checkpoint writes the overlay of the last [Index.Freeze] to index.db, with the counts at that moment and a, in one
// transaction, and then publishes a version without it. Without a freeze it freezes first. ctx is looked at before the
// transaction only.
//
// After an error the frozen overlay stays where it is, readers see no difference, and the next checkpoint writes it. A full disk
// (vfs.ErrNoSpace) is worth another try. So is a folder that cannot be opened (vfs.ErrNotSynced): a new file is in use then, and only its
// name is not durable, which the same checkpoint does when it is tried again. After any other error of the disk nothing is written any
// more: vfs.ErrPoisoned.
func (ix *Index) Checkpoint(ctx context.Context, a Applied) error {
	ix.keep.Lock()
	defer ix.keep.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if ix.o.ReadOnly {
		return ErrReadOnly
	}
	if len(a.Extra) > MaxExtraBytes {
		return fmt.Errorf("index: %d bytes of the caller's state, at most %d", len(a.Extra), MaxExtraBytes)
	}
	if err := ix.syncName(); err != nil {
		return err
	}
	again := ix.unsaid && a.LSN == ix.applied.LSN && a.WALFile == ix.applied.WALFile
	if ix.unsaid = false; again {
		return nil
	}
	a.Extra = bytes.Clone(a.Extra)
	j, err := ix.job(&a)
	if err != nil {
		return err
	}
	defer j.release()
	file := j.base.file
	if err := file.writable(); err != nil {
		return err
	}
	if err := j.checkPaths(); err != nil {
		return err
	}
	if j.base.worthReplacing(j.frozen.size()) {
		err := ix.replace(j)
		if ix.base() != j.base || !errors.Is(err, vfs.ErrNoSpace) && !errors.Is(err, errBusy) {
			return err
		}
		// A second file does not fit, or cannot take the name now: this one grows by less.
	}
	if err := file.ready(j.base); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	err = file.contain("commit", func() error { return file.db.Update(j.write) })
	if errors.Is(err, berrors.ErrMaxSizeReached) {
		return ix.replace(j)
	}
	if err != nil {
		return j.failed(err)
	}
	next, err := file.next()
	if err != nil {
		return err
	}
	ix.finish(j, next)
	return nil
}

// worthReplacing reports whether writing so many rows makes a new file of rows in their order cheaper than a transaction: keys
// are hashes, so each row changes a page of its own, and each changed page leaves a free one behind, which bbolt lists in
// memory at every open.
func (s *snapshot) worthReplacing(rows int) bool {
	const few = 256 // pages
	free := s.freePages()
	used := int(s.meta.pages) - free
	return used >= few && (rows >= used/4 || free > used/2)
}

// freePages are those of the list, and its own.
func (s *snapshot) freePages() int { return len(s.list.ids)/8 + int(s.list.own) }

// job is what one checkpoint writes over which base; or, without a frozen overlay, what a compaction keeps.
type job struct {
	layers                 // the frozen overlay, and the base, which the job holds
	uuid          kv.UUID  //
	counts, had   counters // as of the freeze, and in the base
	applied, last Applied
	thaw          bool   // the frozen overlay ends with this job
	smaller       bool   // a new file must occupy less than the one it replaces
	halted        func() // Options.Halted
}

// job starts a checkpoint, or a compaction if a is nil. Callers hold keep.
func (ix *Index) job(a *Applied) (*job, error) {
	ix.write.Lock()
	defer ix.write.Unlock()
	ix.edits++
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.closed {
		return nil, ErrClosed
	}
	j := &job{uuid: ix.o.UUID, had: ix.persisted, last: ix.applied, halted: ix.o.Halted}
	j.base = ix.rows.base
	if a == nil {
		j.counts, j.applied = ix.persisted, ix.applied
	} else {
		if !ix.freezing {
			ix.freeze()
		}
		j.frozen, j.counts, j.applied, j.thaw = ix.rows.frozen, ix.frozen, *a, true
	}
	j.base.acquire()
	return j, nil
}

// release gives the base up that j works on.
func (j *job) release() {
	if j.base != nil {
		j.base.release()
		j.base = nil
	}
}

// finish publishes the base that j made.
func (ix *Index) finish(j *job, next *snapshot) {
	ix.mu.Lock()
	old := ix.rows.base
	ix.adopt(j, next)
	ix.mu.Unlock()
	old.release()
}

// adopt makes next the base. Callers hold keep and mu.
func (ix *Index) adopt(j *job, next *snapshot) {
	ix.rows.base, ix.persisted, ix.applied = next, j.counts, j.applied
	// An overlay that another freeze has added to since waits for the next checkpoint.
	if j.thaw && ix.rows.frozen == j.frozen {
		ix.rows.frozen, ix.freezing = nil, false
	}
}

// changes calls fn for each row that the checkpoint changes, in order within a table; a nil payload deletes it.
func (j *job) changes(fn func(key, payload []byte) error) error {
	if err := fn(storeKey, j.storePayload()); err != nil {
		return err
	}
	now, was := chunks(j.applied.Extra), chunks(j.last.Extra)
	for i := range max(len(now), len(was)) {
		var chunk []byte
		if i < len(now) {
			if chunk = now[i]; i < len(was) && bytes.Equal(chunk, was[i]) {
				continue
			}
		}
		if err := fn(appendExtraKey(nil, uint32(i)), chunk); err != nil {
			return err
		}
	}
	if err := j.frozen.each(fn); err != nil {
		return err
	}
	if err := j.counts.rows.each(func(key, val []byte) error {
		if n := j.had.rows.find(key); n != nil && bytes.Equal(n.val, val) {
			return nil
		}
		return fn(key, val)
	}); err != nil {
		return err
	}
	return j.had.rows.each(func(key, _ []byte) error {
		if j.counts.rows.find(key) != nil {
			return nil
		}
		return fn(key, nil)
	})
}

func (j *job) storePayload() []byte {
	return appendStore(nil, &storeRow{UUID: j.uuid, Applied: j.applied, Totals: j.counts.total, ExtraBytes: uint32(len(j.applied.Extra))})
}

// chunks cuts the caller's state into rows.
func chunks(extra []byte) (out [][]byte) {
	for len(extra) > 0 {
		n := min(len(extra), extraChunkBytes)
		out, extra = append(out, extra[:n:n]), extra[n:]
	}
	return out
}

// write is the transaction.
func (j *job) write(tx *bolt.Tx) error {
	b := tx.Bucket(bucketName)
	if b == nil {
		return j.base.bad(j.base.meta.root, "bbolt's list of buckets", "no bucket")
	}
	return j.changes(func(key, payload []byte) error {
		if payload == nil {
			return b.Delete(key)
		}
		return b.Put(key, encodeValue(key, payload))
	})
}

// failed decides whether a commit can be tried again. A full disk fails before the meta page is written. After a failed
// fsync nobody knows what is on the disk: what was written may read well until it is lost.
func (j *job) failed(err error) error {
	if errors.Is(err, ErrDamaged) {
		return err
	}
	file := j.base.file
	err = fmt.Errorf("checkpoint of %s: %w", file.path, err)
	if err = noSpace(err); errors.Is(err, vfs.ErrNoSpace) && !file.beyond(j.base.meta.txid) {
		return err
	}
	return file.halt(err, j.halted)
}

// noSpace marks what bbolt returns on a full disk.
func noSpace(err error) error {
	const diskFull, handleDiskFull = syscall.Errno(112), syscall.Errno(39) // on Windows
	is := func(errno ...syscall.Errno) bool {
		return slices.ContainsFunc(errno, func(n syscall.Errno) bool { return errors.Is(err, n) })
	}
	// A limit on the size of files is a full disk, too.
	if is(syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG) || (runtime.GOOS == "windows" && is(diskFull, handleDiskFull)) {
		return fmt.Errorf("%w: %w", vfs.ErrNoSpace, err)
	}
	return err
}

// beyond reports whether a meta page of a later transaction than txid was written, or either cannot be read.
func (file *boltFile) beyond(txid uint64) bool {
	later := true
	file.contain("read", func() error {
		for id := range uint64(2) {
			m, bad := parseMeta(file.path, file.data[id*pageBytes:(id+1)*pageBytes], id)
			if bad != nil || m.txid > txid {
				return nil
			}
		}
		later = false
		return nil
	})
	return later
}
