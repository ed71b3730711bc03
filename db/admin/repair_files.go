package admin

import (
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/internal/damage"
)

// DamagedFile is a file, or a folder, that is damaged or of which not all was copied.
type DamagedFile struct {
	Path      string
	Lost      int   // records in it that were not copied
	LostBytes int64 // of these records; of a session, all behind its first damage
	Offset    int64 // of the first damage; if the file itself is sound, of the first record that needs what is lost elsewhere
	Err       error // what is wrong there, mostly a *db.CorruptError
}

// errNeedsLost says why a sound record is not copied: without these nothing can find or use it.
var errNeedsLost = errors.New("a block of its prefix, or the descriptor of its model, is lost")

// damagedFiles collects what is wrong, by path.
type damagedFiles map[string]*DamagedFile

// damaged notes what is wrong at an offset of a file. Damage of the file itself says more than a prefix that is lost elsewhere.
func (f damagedFiles) damaged(path string, off int64, err error) *DamagedFile {
	d := f[path]
	if d == nil {
		d = &DamagedFile{Path: path, Offset: off, Err: err}
		f[path] = d
	}
	known, better := errors.Is(d.Err, errNeedsLost), errors.Is(err, errNeedsLost)
	if known && !better || known == better && off < d.Offset {
		d.Offset, d.Err = off, err
	}
	return d
}

// bad notes damage, if err is that.
func (f damagedFiles) bad(err error) bool {
	var d *damage.Error
	is := errors.As(err, &d)
	if is {
		f.damaged(d.File, d.Offset, d)
	}
	return is
}

// lost counts a record that is not copied.
func (f damagedFiles) lost(path string, off, bytes int64, why error) {
	if d := (*damage.Error)(nil); errors.As(why, &d) {
		off = d.Offset
	} else {
		why = fmt.Errorf("%s: record at offset %d: %w", path, off, why)
	}
	d := f.damaged(path, off, why)
	d.Lost++
	d.LostBytes += bytes
}
