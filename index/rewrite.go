package index

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// errBusy is returned when index.db must be replaced by a new file, the system cannot replace a file that is open, and
// views stay open. Nothing has changed; try again when they are released.
var errBusy = errors.New("index: in use by open views")

// replaceOpen says whether a file can be replaced while it is open and mapped.
var replaceOpen = runtime.GOOS != "windows"

// busyWait bounds how long a replacement waits for views to be released, where it must.
var busyWait = 10 * time.Second

// rewriteRows is how many rows go into one transaction of a new file.
const rewriteRows = 8192

// FreeBytes are those of index.db's pages that hold nothing: what [Index.Shrink] may give back.
func (ix *Index) FreeBytes() int64 {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.closed {
		return 0
	}
	return int64(ix.rows.base.freePages()) * pageBytes
}

// Compact writes index.db anew, without its free pages. Views that are open keep the old file until they are released.
func (ix *Index) Compact() error { return ix.compact(false) }

// Shrink is Compact, unless the new file would not occupy less: then the old one stays.
func (ix *Index) Shrink() error { return ix.compact(true) }

// errNoSmaller says that a new file occupies no less than the one that it was to replace.
var errNoSmaller = errors.New("index: not smaller")

func (ix *Index) compact(smaller bool) error {
	ix.keep.Lock()
	defer ix.keep.Unlock()
	if ix.o.ReadOnly {
		return ErrReadOnly
	}
	if err := ix.syncName(); err != nil {
		return err
	}
	j, err := ix.job(nil)
	if err != nil {
		return err
	}
	defer j.release()
	if err := j.base.file.writable(); err != nil {
		return err
	}
	j.smaller = smaller
	if err := ix.replace(j); err != errNoSmaller {
		return err
	}
	return nil
}

// replace writes what j describes to a new file and goes on with that. It is atomic: the new file takes the name when it
// is complete and durable. After an error the base says which of the two is in use; where it is the new one, only its name is not
// durable.
func (ix *Index) replace(j *job) (err error) {
	tmp := ix.o.Path + ".tmp"
	start, pages := time.Now(), j.base.meta.pages
	if err := writeFile(ix.o, tmp, j.rows); err != nil {
		return err
	}
	if j.smaller && !ix.smaller(tmp) {
		if err := ix.o.FS.Remove(tmp); err != nil {
			return err
		}
		return errNoSmaller
	}
	defer func() {
		if err == nil {
			ix.o.Logger.Debug("index written anew", "file", ix.o.Path, "blocks", j.counts.total.Blocks,
				"bytesBefore", pages*pageBytes, "bytes", ix.Bytes(), "took", time.Since(start))
		}
	}()
	name := ix.nameOpen
	if !replaceOpen {
		name = ix.nameClosed
	}
	if err := name(j, tmp); err != nil {
		return err
	}
	ix.nameDue = true
	err = ix.syncName()
	ix.unsaid = err != nil && j.thaw || ix.unsaid && !j.thaw
	return err
}

// smaller reports whether a new file occupies less than the one in use.
func (ix *Index) smaller(tmp string) bool {
	old, err := ix.o.FS.Stat(ix.o.Path)
	if err != nil {
		return true
	}
	made, err := ix.o.FS.Stat(tmp)
	return err == nil && made.Allocated < old.Allocated
}

// base is the file in use, or nil.
func (ix *Index) base() *snapshot {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return ix.rows.base
}

// nameOpen gives a new file the index's name, and goes on with it.
func (ix *Index) nameOpen(j *job, tmp string) error {
	next, err := openSnapshot(ix.o, tmp)
	if err != nil {
		ix.o.FS.Remove(tmp)
		return err
	}
	if err := ix.o.FS.Rename(tmp, ix.o.Path); err != nil {
		next.release()
		ix.o.FS.Remove(tmp)
		return err
	}
	next.file.path = ix.o.Path
	ix.finish(j, next)
	return nil
}

// syncName makes the name of a new file durable. Until then a power cut may bring the old one back: that is whole, but belongs to an
// older log. Callers hold keep.
func (ix *Index) syncName() error {
	if !ix.nameDue {
		return nil
	}
	base := ix.base()
	if base == nil {
		return ErrClosed
	}
	if err := base.file.writable(); err != nil { // no failed fsync is tried again
		return err
	}
	err := ix.o.FS.SyncDir(filepath.Dir(ix.o.Path))
	if err == nil {
		ix.nameDue = false
		return nil
	}
	err = fmt.Errorf("replace %s: %w", ix.o.Path, err)
	if errors.Is(err, vfs.ErrNotSynced) { // the next call tries again
		return err
	}
	return base.file.halt(err, ix.o.Halted)
}

// nameClosed is nameOpen where the old file must be closed first. New views wait meanwhile.
func (ix *Index) nameClosed(j *job, tmp string) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	old := ix.rows.base
	for end := time.Now().Add(busyWait); old.file.refs.Load() > 1 || old.refs.Load() > 2; time.Sleep(time.Millisecond) {
		// More than one snapshot, or of this one more uses than the index's and j's: a view is open.
		if time.Now().After(end) {
			ix.o.FS.Remove(tmp)
			return fmt.Errorf("%w: %s", errBusy, ix.o.Path)
		}
	}
	j.release()
	err := old.release()
	if err == nil {
		err = ix.o.FS.Rename(tmp, ix.o.Path)
	}
	next, oerr := openSnapshot(ix.o, ix.o.Path) // the new file, or the old one after a failure
	if oerr != nil {
		ix.closed, ix.rows = true, layers{}
		return errors.Join(err, oerr)
	}
	if err != nil {
		ix.rows.base = next
		ix.o.FS.Remove(tmp)
		return err
	}
	ix.adopt(j, next)
	return nil
}

// rows calls put for every row that the new file holds, in order.
func (j *job) rows(put func(key, payload []byte) error) error {
	if err := put(storeKey, j.storePayload()); err != nil {
		return err
	}
	for i, chunk := range chunks(j.applied.Extra) {
		if err := put(appendExtraKey(nil, uint32(i)), chunk); err != nil {
			return err
		}
	}
	for table := byte(tableBlock); table <= tableScope; table++ {
		err := j.scan([]byte{table}, []byte{table}, func(key, val []byte) (bool, error) { return true, put(key, val) })
		if err != nil {
			return err
		}
	}
	if err := j.counts.rows.each(put); err != nil {
		return err
	}
	return put(endKey, empty)
}

// writeFile makes a new bbolt file of rows, complete and durable but for its name.
func writeFile(o Options, path string, rows func(put func(key, payload []byte) error) error) (err error) {
	if err := removeTemporary(o, path); err != nil {
		return err
	}
	file := &boltFile{path: path}
	defer func() {
		if file.db != nil && !file.stuck.Load() {
			err = errors.Join(err, file.contain("close", file.db.Close))
		}
		if err != nil {
			o.FS.Remove(path)
			err = noSpace(err)
		}
	}()
	return file.contain("write", func() error {
		if file.db, err = bolt.Open(path, 0o600, &bolt.Options{
			Timeout: lockWait, PageSize: pageBytes, FreelistType: bolt.FreelistMapType, NoStatistics: true,
			NoSync: true, NoGrowSync: true, // one sync at the end
		}); err != nil {
			return err
		}
		file.db.AllocSize = growBytes
		w := batchWriter{db: file.db}
		if err := rows(w.put); err != nil {
			w.abort()
			return err
		}
		if err := w.flush(); err != nil {
			return err
		}
		return file.db.Sync()
	})
}

// batchWriter puts rows, in ascending order, some thousands to a transaction.
type batchWriter struct {
	db *bolt.DB
	tx *bolt.Tx
	b  *bolt.Bucket
	n  int
}

func (w *batchWriter) put(key, payload []byte) (err error) {
	if w.tx == nil {
		if w.tx, err = w.db.Begin(true); err != nil {
			return err
		}
		if w.b, err = w.tx.CreateBucketIfNotExists(bucketName); err != nil {
			return err
		}
		w.b.FillPercent = 0.9 // in order: no later row comes between
	}
	if err = w.b.Put(bytes.Clone(key), encodeValue(key, payload)); err != nil {
		return err
	}
	if w.n++; w.n < rewriteRows {
		return nil
	}
	return w.flush()
}

func (w *batchWriter) flush() error {
	tx := w.tx
	w.tx, w.b, w.n = nil, nil, 0
	if tx == nil {
		return nil
	}
	return tx.Commit()
}

func (w *batchWriter) abort() {
	if w.tx != nil {
		w.tx.Rollback()
	}
}
