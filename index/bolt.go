package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// boltFile is an open index.db. bbolt locks and writes it; we read it through a map of our own. It closes when the last
// snapshot of it does.
//
// bbolt would move its map to grow it, and wait for all read transactions to end first; ours never all end. So both maps
// are made large at once, bbolt is told to fail before it would move its own (bolt.ErrMaxSizeReached), and then the rows
// are written to a new file with a larger map: see rewrite.go.
type boltFile struct {
	path string
	db   *bolt.DB
	f    vfs.File
	m    vfs.Mapping
	data []byte       // m's bytes, beyond the file's end for the most part
	refs atomic.Int64 // snapshots

	poison atomic.Pointer[error] // the first damage met: nothing is read any more
	halted atomic.Pointer[error] // the first failed write: nothing is written any more, reads go on
	stuck  atomic.Bool           // bbolt panicked and may hold its locks: closing it could wait for ever
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

// openBolt opens path after checks of what bbolt would panic on.
func openBolt(o Options, path string) (_ *boltFile, err error) {
	f, err := o.FS.Open(path, true)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s", ErrMissing, path)
		}
		return nil, err
	}
	file := &boltFile{path: path, f: f}
	defer func() {
		if err != nil {
			file.close()
		}
	}()
	size, used, err := file.precheck()
	if err != nil {
		return nil, err
	}
	mapped := mapBytes(size, used)
	if o.ReadOnly {
		mapped = roundMap(size)
	}
	bo := &bolt.Options{
		Timeout: lockWait, ReadOnly: o.ReadOnly, PageSize: pageBytes, InitialMmapSize: int(mapped),
		FreelistType: bolt.FreelistMapType, NoStatistics: true,
	}
	err = file.contain("open", func() (err error) {
		file.db, err = bolt.Open(path, 0o600, bo)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	file.db.AllocSize = growBytes
	file.db.MaxSize = int(mapped) - 1
	if runtime.GOOS == "windows" { // a map cannot be larger than the file
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		mapped = min(mapped, info.Size)
	}
	if file.m, err = f.Map(mapped); err != nil {
		return nil, err
	}
	file.data = file.m.Bytes()
	return file, nil
}

// precheck reads what bbolt reads when it opens a file, and returns the file's size and how much of it is in use. Both meta
// pages must be whole: the older one alone would be an older state, whose log may be gone.
func (file *boltFile) precheck() (size, used int64, err error) {
	info, err := file.f.Stat()
	if err != nil {
		return 0, 0, err
	}
	size = info.Size
	bad := func(off int64, what string, expected, found any) (int64, int64, error) {
		return 0, 0, fail(damage.New(file.path, off, what, expected, found))
	}
	if size < 4*pageBytes || size%pageBytes != 0 {
		return bad(0, "file size", fmt.Sprintf("at least 4 pages of %d bytes", pageBytes), size)
	}
	read := func(off, n int64) ([]byte, error) {
		b := make([]byte, n)
		_, err := file.f.ReadAt(b, off)
		if errors.Is(err, io.EOF) {
			err = fail(damage.Wrap(file.path, off, "page", io.ErrUnexpectedEOF))
		}
		return b, err
	}
	b, err := read(0, 2*pageBytes)
	if err != nil {
		return 0, 0, err
	}
	var metas [2]meta
	for i := range metas {
		var bad *damage.Error
		if metas[i], bad = parseMeta(file.path, b[i*pageBytes:(i+1)*pageBytes], uint64(i)); bad != nil {
			return 0, 0, fail(bad)
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
	at := int64(now.freelist) * pageBytes
	head, err := read(at, pageHeaderBytes)
	if err != nil {
		return 0, 0, err
	}
	pages := uint64(binary.LittleEndian.Uint32(head[12:])) + 1
	if pages > now.pages-now.freelist {
		return bad(at, "bbolt freelist", fmt.Sprintf("at most %d pages", now.pages-now.freelist), pages)
	}
	if b, err = read(at, int64(pages)*pageBytes); err != nil {
		return 0, 0, err
	}
	if _, _, bad := parseFreelist(file.path, b, now); bad != nil {
		return 0, 0, fail(bad)
	}
	return size, int64(now.pages) * pageBytes, nil
}

// begin opens a snapshot of the last commit.
func (file *boltFile) begin() (*snapshot, error) {
	s := &snapshot{file: file}
	if err := file.contain("begin", func() (err error) {
		s.tx, err = file.db.Begin(false)
		return err
	}); err != nil {
		return nil, err
	}
	file.refs.Add(1)
	s.refs.Store(1) // the caller's
	if err := file.contain("read", s.load); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// openSnapshot opens a file and its last commit. The file closes with the last of its snapshots.
func openSnapshot(o Options, path string) (*snapshot, error) {
	file, err := openBolt(o, path)
	if err != nil {
		return nil, err
	}
	file.refs.Add(1)
	defer file.drop()
	return file.begin()
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
		err = fmt.Errorf("%w (address %#x)", vfs.ErrFault, e.Addr())
	}
	return file.damaged(damage.Wrap(file.path, 0, "index, in "+what, err))
}

// damaged notes the first damage, after which nothing is read any more.
func (file *boltFile) damaged(bad *damage.Error) error {
	err := fail(bad)
	file.poison.CompareAndSwap(nil, &err)
	return err
}

// halt makes err the answer to every later write, and returns it; the first one stays, and is told before anybody hears of it.
func (file *boltFile) halt(err error, tell func()) error {
	err = fmt.Errorf("%w: %w", vfs.ErrPoisoned, err)
	if file.halted.Load() == nil && tell != nil {
		tell()
	}
	file.halted.CompareAndSwap(nil, &err)
	return err
}

// writable returns why nothing can be written any more.
func (file *boltFile) writable() error {
	if p := file.halted.Load(); p != nil {
		return *p
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
