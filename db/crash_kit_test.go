package db

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// What the tests of crashes and of failing disks share besides: conversations (crash_chats_test.go), a script of operations
// (crash_script_test.go) done on a store (crash_run_test.go) by one process after the other (crash_process_test.go), a journal of
// what was acknowledged (crash_journal_test.go), with which a store that comes back is compared (crash_compare_test.go).

// rebooted makes the log say that it was written by a system that ran before this one was booted, as after a power cut:
// it replaces the boot's name in the snapshots that the log files begin with, and its number in all frames. The disk must have nothing unsynced.
func rebooted(d *crashfs.Disk) error { return rebootedIn(d, d.Dir()) }

func rebootedIn(d vfs.FS, at string) error {
	boot := bootID()
	format, err := vfs.ReadAll(d, filepath.Join(at, formatName), 1<<16)
	if boot == "" || err != nil || len(format) != formatBytes {
		return nil // every open takes the log for an older system's, or there is none
	}
	dir := filepath.Join(at, walDir)
	names, err := d.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".wal") {
			continue
		}
		f, err := d.Open(filepath.Join(dir, name), false)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		b := make([]byte, info.Size)
		f.ReadAt(b, 0)
		if id, err := strconv.ParseUint(strings.TrimSuffix(name, ".wal"), 16, 64); err == nil {
			rebootFrames(b, id, xxhash.Sum64(format[40:56]), boot)
		}
		if _, err := f.WriteAt(b, 0); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// rebootFrames does so in the bytes of one log file (docs/format/wal.md), behind what is torn, too.
func rebootFrames(b []byte, id, seed uint64, boot string) {
	const header, head, tail = 64, 48, 8
	for off := header; off+head+tail <= len(b); off += 8 {
		f := b[off:]
		length := int(binary.LittleEndian.Uint32(f))
		end := (length + 7) / 8 * 8
		if binary.LittleEndian.Uint64(f[8:]) != id || binary.LittleEndian.Uint64(f[16:]) != uint64(off) || length < head || end+tail > len(f) {
			continue
		}
		sum := func() uint64 {
			var d xxhash.Digest
			d.ResetWithSeed(seed)
			d.Write(f[:end])
			return d.Sum64()
		}
		if sum() != binary.LittleEndian.Uint64(f[end:]) {
			continue
		}
		binary.LittleEndian.PutUint64(f[40:], binary.LittleEndian.Uint64(f[40:])+1) // and another after the next cut
		if at := bytes.Index(f[:end], []byte(boot)); at >= 0 && off == header {
			copy(f[at:], bytes.Repeat([]byte{'x'}, len(boot)))
		}
		binary.LittleEndian.PutUint64(f[end:], sum())
	}
}

// crashDirs hands out empty real directories, in memory where the system has such.
type crashDirs struct {
	top string
	n   int
	mu  sync.Mutex
}

func newCrashDirs(t testing.TB) *crashDirs {
	top := ""
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() && runtime.GOOS == "linux" {
		top, _ = os.MkdirTemp("/dev/shm", "dormouse-crash-")
	}
	if top == "" {
		top = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	return &crashDirs{top: top}
}

func (c *crashDirs) next() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	dir := filepath.Join(c.top, fmt.Sprint(c.n))
	if err := os.Mkdir(dir, 0o700); err != nil {
		panic(err)
	}
	return dir
}

func newCrashDisk(dir string) *crashfs.Disk {
	return crashfs.New(crashfs.Options{Dir: dir, Outside: []string{indexName, indexName + ".tmp"}})
}

// crashSeed is the seed of a test, and whether everything is to be tried. An ordinary run tries the same every time.
func crashSeed(t *testing.T) (seed uint64, all bool) {
	seed = 1
	fmt.Sscan(os.Getenv("DORMOUSE_CRASH_SEED"), &seed)
	t.Logf("DORMOUSE_CRASH_SEED=%d", seed)
	return seed, os.Getenv("DORMOUSE_CRASH") == "all"
}

// crashRuns does one run after the other, each with a seed of its own, for seconds, or for an hour, until one fails.
func crashRuns(t *testing.T, run func(seed uint64)) {
	seed, all := crashSeed(t)
	d := 4 * time.Second
	if all {
		d = time.Hour
	}
	runs := uint64(0)
	for until := time.Now().Add(d); time.Now().Before(until) && !t.Failed(); runs++ {
		run(seed + runs)
	}
	t.Logf("%d runs", runs)
}

// within fails the test if fn hangs.
func within(t testing.TB, d time.Duration, what string, fn func()) {
	t.Helper()
	timer := time.AfterFunc(d, func() {
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "%s hangs\n%s\n", what, buf[:runtime.Stack(buf, true)])
		os.Exit(2)
	})
	defer timer.Stop()
	fn()
}

func crashTail(log []string) string { return strings.Join(log[max(0, len(log)-60):], "\n\t") }

// cutAndRebooted is one of the states in which a power cut can leave d, as the next boot finds it.
func cutAndRebooted(d *crashfs.Disk, r *rand.Rand, dirs *crashDirs) (*crashfs.Disk, error) {
	image, err := d.PowerCut(r, dirs.next())
	if err == nil {
		err = rebooted(image)
	}
	return image, err
}
