package index

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// boltFile is an open index.db. We read it through a map of our own; bbolt, which locks and writes it, opens it for the first
// commit, because it reads a list of all free pages then. It closes when the last snapshot of it does.
//
// bbolt would move its map to grow it, and wait for all read transactions to end first; ours never all end. So both maps
// are made large at once, bbolt is told to fail before it would move its own (bolt.ErrMaxSizeReached), and then the rows
// are written to a new file with a larger map: see rewrite.go.
type boltFile struct {
	path   string
	db     *bolt.DB // nil until the first commit
	f      vfs.File
	m      vfs.Mapping
	mapped int64        // bytes that bbolt is to map
	data   []byte       // m's bytes, beyond the file's end for the most part
	refs   atomic.Int64 // snapshots

	poison atomic.Pointer[error] // the first damage met: nothing is read any more
	halted vfs.Poison            // the first failed write: nothing is written any more, reads go on
	stuck  atomic.Bool           // bbolt panicked and may hold its locks: whatever it is asked for could wait for ever

	reading lock.Mutex[lock.IndexFile] // a read transaction begins or ends
}

// lockWait bounds how long opening waits for another holder of bbolt's lock. Zero would be for ever.
const lockWait = 2 * time.Second

// growBytes is by how much bbolt grows a file.
const growBytes = 1 << 20

// mapBytes is how much to map of a file of size bytes of which used are in use: one of the sizes that bbolt would choose
// itself.
func mapBytes(size, used int64) int64 {
	room := max(int64(256<<20), 2*used)
	switch runtime.GOOS {
	case "android", "ios":
		room = max(64<<20, 2*used) // less address space
	case "windows":
		room = used + used/4 // there the file is made as large as the map
	}
	if testMapBytes > 0 {
		room = max(testMapBytes, 2*used)
	}
	return roundMap(max(size, room))
}

// testMapBytes makes maps small for tests.
var testMapBytes int64

// roundMap rounds up as bbolt does: to a power of two, beyond 1 GiB to a multiple of it.
func roundMap(size int64) int64 {
	for i := 15; i <= 30; i++ {
		if size <= 1<<i {
			return 1 << i
		}
	}
	return (size + 1<<30 - 1) >> 30 << 30
}

// openFile opens and maps path, and returns the meta page of its last commit.
func openFile(o Options, path string) (_ *boltFile, now meta, err error) {
	f, err := o.FS.Open(path, true)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, now, fmt.Errorf("%w: %s", ErrMissing, path)
		}
		return nil, now, err
	}
	file := &boltFile{path: path, f: f}
	defer func() {
		if err != nil {
			file.close()
		}
	}()
	size, now, err := file.precheck()
	if err != nil {
		return nil, now, err
	}
	file.mapped = mapBytes(size, int64(now.pages)*pageBytes)
	mapped := file.mapped
	switch {
	case o.ReadOnly:
		mapped = roundMap(size)
	case runtime.GOOS == "windows": // a map cannot be larger than the file, which bbolt makes as large as its own
		if err := file.openBolt(); err != nil {
			return nil, now, err
		}
	}
	if runtime.GOOS == "windows" {
		info, err := f.Stat()
		if err != nil {
			return nil, now, err
		}
		mapped = min(mapped, info.Size)
	}
	if file.m, err = f.Map(mapped); err != nil {
		return nil, now, err
	}
	file.data = file.m.Bytes()
	return file, now, nil
}

// openBolt lets bbolt open the file, which precheck has seen.
func (file *boltFile) openBolt() error {
	err := file.contain("open", func() (err error) {
		file.db, err = bolt.Open(file.path, 0o600, &bolt.Options{
			Timeout: lockWait, PageSize: pageBytes, InitialMmapSize: int(file.mapped), FreelistType: bolt.FreelistMapType, NoStatistics: true,
			OpenFile: openFilled,
		})
		return err
	})
	if errors.Is(err, errEmptied) || errors.Is(err, fs.ErrNotExist) && exists(filepath.Dir(file.path)) { // with its folder it may come back
		return file.damaged(damage.Wrap(file.path, 0, "index", err))
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", file.path, err)
	}
	file.db.AllocSize = growBytes
	file.db.MaxSize = int(file.mapped) - 1
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

var errEmptied = errors.New("the file was emptied while it was open")

// openFilled opens a file for bbolt that has something in it. Where one was removed or emptied, bbolt would begin another, which nobody could
// tell from somebody else's.
func openFilled(name string, flag int, mode fs.FileMode) (*os.File, error) {
	var f *os.File
	err := vfs.WithHandle(func() (err error) {
		f, err = os.OpenFile(name, flag&^os.O_CREATE, mode)
		return err
	})
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() == 0 {
		err = errEmptied
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// precheck reads the file's size and the meta page of its last commit. Both meta pages must be whole: the older one alone
// would be an older state, whose log may be gone.
func (file *boltFile) precheck() (size int64, now meta, err error) {
	info, err := file.f.Stat()
	if err != nil {
		return 0, now, err
	}
	size = info.Size
	bad := func(off int64, what string, expected, found any) (int64, meta, error) {
		return 0, now, fail(damage.New(file.path, off, what, expected, found))
	}
	if size < 4*pageBytes || size%pageBytes != 0 {
		return bad(0, "file size", fmt.Sprintf("at least 4 pages of %d bytes", pageBytes), size)
	}
	b := make([]byte, 2*pageBytes)
	if _, err := file.f.ReadAt(b, 0); errors.Is(err, io.EOF) {
		return 0, now, fail(damage.Wrap(file.path, 0, "page", io.ErrUnexpectedEOF))
	} else if err != nil {
		return 0, now, err
	}
	var metas [2]meta
	for i := range metas {
		var bad *damage.Error
		if metas[i], bad = parseMeta(file.path, b[i*pageBytes:(i+1)*pageBytes], uint64(i)); bad != nil {
			return 0, now, fail(bad)
		}
	}
	now, before := metas[0], metas[1]
	if now.txid < before.txid {
		now, before = before, now
	}
	if now.txid != before.txid+1 {
		return bad(0, "bbolt meta pages", "consecutive transactions", fmt.Sprintf("%d and %d", before.txid, now.txid))
	}
	if now.pages > uint64(size)/pageBytes {
		return bad(size, "file size", fmt.Sprintf("%d pages of %d bytes", now.pages, pageBytes), size)
	}
	return size, now, nil
}

// openSnapshot opens a file and its last commit. The file closes with the last of its snapshots.
func openSnapshot(o Options, path string) (*snapshot, error) {
	file, now, err := openFile(o, path)
	if err != nil {
		return nil, err
	}
	file.refs.Add(1)
	defer file.drop()
	s, err := file.snapshot(now.txid)
	if err != nil || file.db == nil {
		return s, err
	}
	if err := file.hold(s); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// snapshot reads the commit of transaction txid, which is the last one.
func (file *boltFile) snapshot(txid uint64) (*snapshot, error) {
	s := &snapshot{file: file}
	file.refs.Add(1)
	s.refs.Store(1) // the caller's
	if err := file.contain("read", func() error { return s.load(txid) }); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// ready opens the file for writing, before its first commit. Until then nothing writes over the pages of its one snapshot s.
func (file *boltFile) ready(s *snapshot) error {
	if file.db != nil {
		return nil
	}
	if err := file.openBolt(); err != nil {
		return err
	}
	return file.hold(s)
}

// hold keeps bbolt from writing over the pages of the last commit s, until s is released.
func (file *boltFile) hold(s *snapshot) error {
	tx, err := file.begin()
	if err != nil {
		return err
	}
	s.tx = tx
	if id := uint64(tx.ID()); id != s.meta.txid {
		return file.damaged(damage.New(file.path, 0, "bbolt meta pages", fmt.Sprintf("transaction %d, as when the file was opened", s.meta.txid), id))
	}
	return nil
}

// begin and end take turns: bbolt holds a lock while one begins that it needs to end another, and keeps it where it meets damage.
func (file *boltFile) begin() (tx *bolt.Tx, err error) {
	file.reading.Lock()
	defer file.reading.Unlock()
	err = file.contain("begin", func() error {
		tx, err = file.db.Begin(false)
		return err
	})
	return tx, err
}

// end ends a read transaction, if that is possible.
func (file *boltFile) end(tx *bolt.Tx) error {
	file.reading.Lock()
	defer file.reading.Unlock()
	if file.stuck.Load() {
		return nil
	}
	return file.contain("end", tx.Rollback)
}

// next is a snapshot of the commit that was just made.
func (file *boltFile) next() (*snapshot, error) {
	tx, err := file.begin()
	if err != nil {
		return nil, err
	}
	s, err := file.snapshot(uint64(tx.ID()))
	if err != nil {
		return nil, errors.Join(err, file.end(tx))
	}
	s.tx = tx
	return s, nil
}

// drop gives up one use of the file, and closes it after the last.
func (file *boltFile) drop() error {
	if file.refs.Add(-1) > 0 {
		return nil
	}
	return file.close()
}

// close gives up what was opened. A bbolt that panicked is left alone with its map and its lock, which is a lock on the
// file and not on its name: [Create] makes another file.
func (file *boltFile) close() error {
	var err error
	if file.db != nil && !file.stuck.Load() {
		err = file.contain("close", file.db.Close)
	}
	if file.m != nil {
		err = errors.Join(err, file.m.Close())
	}
	return errors.Join(err, file.f.Close())
}

// contain calls into bbolt. Whatever it meets on damaged pages becomes an error.
func (file *boltFile) contain(what string, fn func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			if what != "read" {
				file.stuck.Store(true)
			}
			err = file.panicked(what, r)
		}
	}()
	return fn()
}

func (file *boltFile) panicked(what string, r any) error {
	err, ok := r.(error)
	if !ok {
		err = fmt.Errorf("%v", r)
	}
	if e, ok := r.(interface{ Addr() uintptr }); ok {
		err = &vfs.Fault{Addr: e.Addr()}
	}
	return file.damaged(damage.Wrap(file.path, 0, "index, in "+what, err))
}

// damaged notes the first damage, after which nothing is read any more.
func (file *boltFile) damaged(bad *damage.Error) error {
	err := fail(bad)
	file.poison.CompareAndSwap(nil, &err)
	return err
}

// halt makes err the answer to every later write; the first one stays.
func (file *boltFile) halt(err error, tell func()) error {
	return file.halted.Set(err, func(error) {
		if tell != nil {
			tell()
		}
	})
}

// writable returns why nothing can be written any more.
func (file *boltFile) writable() error {
	if err := file.halted.Err(); err != nil {
		return err
	}
	return file.failed()
}

// failed returns the first damage.
func (file *boltFile) failed() error {
	if p := file.poison.Load(); p != nil {
		return *p
	}
	return nil
}
