package crashtest

import (
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

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/internal/boot"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// Reboot makes the log say that it was written by a system that ran before this one was booted, as after a power cut:
// it replaces the boot's number in all frames. The disk must have nothing unsynced.
func Reboot(d vfs.FS, at string) error {
	const walDir, seedAt, seedBytes = "wal", 40, 16
	format, err := vfs.ReadAll(d, filepath.Join(at, "FORMAT"), 1<<16)
	if boot.Number() == 0 || err != nil || len(format) < seedAt+seedBytes {
		return nil // no frame says its boot, or there is none
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
		if n, err := strconv.ParseUint(strings.TrimSuffix(name, ".wal"), 16, 64); err == nil {
			RebootFrames(b, n, xxhash.Sum64(format[seedAt:seedAt+seedBytes]))
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

// RebootFrames does so in the bytes of one log file (docs/format/wal.md), behind what is torn, too.
func RebootFrames(b []byte, id, seed uint64) {
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
		binary.LittleEndian.PutUint64(f[end:], sum())
	}
}

// Dirs hands out empty real directories, in memory where the system has such.
type Dirs struct {
	Top string
	n   int
	mu  sync.Mutex
}

// NewDirs are removed when the test ends.
func NewDirs(t testing.TB) *Dirs {
	top := ""
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() && runtime.GOOS == "linux" {
		top, _ = os.MkdirTemp("/dev/shm", "dormouse-crash-")
	}
	if top == "" {
		top = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	return &Dirs{Top: top}
}

// Next makes one.
func (c *Dirs) Next() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	dir := filepath.Join(c.Top, fmt.Sprint(c.n))
	if err := os.Mkdir(dir, 0o700); err != nil {
		panic(err)
	}
	return dir
}

// NewDisk is an empty disk, whose files can be seen in dir.
func NewDisk(dir string) *crashfs.Disk {
	return crashfs.New(crashfs.Options{Dir: dir, Outside: []string{"index.db", "index.db.tmp"}})
}

// Cut is one of the states in which a power cut can leave d, as the next boot finds it, or, as often, in which the loss of the volume can,
// as it is found when it comes back in the same boot.
func Cut(d *crashfs.Disk, r *rand.Rand, dirs *Dirs) (*crashfs.Disk, error) {
	if r.IntN(2) == 0 {
		return CutAndReboot(d, r, dirs)
	}
	image, err := d.PowerCut(r, dirs.Next())
	if err == nil {
		image.SameBoot()
	}
	return image, err
}

// CutAndReboot is Cut of the power.
func CutAndReboot(d *crashfs.Disk, r *rand.Rand, dirs *Dirs) (*crashfs.Disk, error) {
	image, err := d.PowerCut(r, dirs.Next())
	if err == nil {
		err = Reboot(image, image.Dir())
	}
	return image, err
}

// Unexpected are the damages in a report that no crash of a disk explains. Where its volume went and came back in the same boot, a frame of the
// log that it lost looks damaged, if it kept a later one of that boot: memory would have lost neither.
func Unexpected(d *crashfs.Disk, found []*damage.Error) (out []*damage.Error) {
	for _, x := range found {
		if !d.Went() || !strings.HasSuffix(x.File, ".wal") {
			out = append(out, x)
		}
	}
	return out
}

// Seed is the seed of a test, and whether everything is to be tried. An ordinary run tries the same every time.
func Seed(t testing.TB) (seed uint64, all bool) {
	seed = 1
	fmt.Sscan(os.Getenv("DORMOUSE_CRASH_SEED"), &seed)
	t.Logf("DORMOUSE_CRASH_SEED=%d", seed)
	return seed, os.Getenv("DORMOUSE_CRASH") == "all"
}
