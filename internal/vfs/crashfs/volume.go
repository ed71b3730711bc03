package crashfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// A volume that goes (a card, a network disk, a file system that shut itself down) takes with it what was not durable, as a power cut does.
// The system stays, and so may the process: its calls fail, and so do those on files that it had open, when the volume is back.

// errGone is what the system says then.
var errGone = fmt.Errorf("the volume is gone: %w", syscall.EIO)

// Unplug lets the volume go: every call fails until [Disk.Plug]. What bbolt writes meanwhile is lost.
func (d *Disk) Unplug() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look()
	d.volume.gone = true
}

// Plug lets the volume come back as left has it, which [Disk.PowerCut] or [Disk.Cut] made of d and nobody uses any more. Files that
// were open stay useless.
func (d *Disk) Plug(left *Disk) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range d.o.Outside { // whoever has it open goes on with a file without a name
		if err := os.Remove(filepath.Join(d.o.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("crashfs: %w", err)
		}
	}
	d.names, d.sure, d.since = left.names, left.sure, nil
	d.volume = volume{plugged: d.volume.plugged + 1, went: true}
	return d.writeOutside()
}

// SameBoot says of a disk that [Disk.PowerCut] or [Disk.Cut] made that the volume had gone, and is back in the same boot.
func (d *Disk) SameBoot() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.volume.went = true
}

// Went reports whether the volume, or one that d was made of, went and came back in the same boot.
func (d *Disk) Went() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.volume.went
}
