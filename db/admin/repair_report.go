package admin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/segments"
)

// Repaired says what Repair copied, and of which files it did not copy all.
type Repaired struct {
	Blocks, Records int   // in the new store
	Bytes           int64 // of the records
	Models, Refs    int
	Sessions        int // those that were copied up to their first damage are among them

	Lost       int           // records that were not copied
	LostBytes  int64         // of these records, and of the sessions behind their first damage
	LostModels int           // models whose descriptor is damaged, with their refs and notes
	Files      []DamagedFile // of the damaged store, sorted by path
	Unknown    string        // what may be missing, or back after its deletion, though no file can tell; empty if nothing
	Notes      []string      // what is odd and costs nothing
}

// Whole reports whether everything was copied, as far as the files can tell.
func (r *Repaired) Whole() bool {
	return r.Lost+r.LostModels == 0 && r.LostBytes == 0 && r.Unknown == ""
}

func (r *Repaired) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// report adds to out what is damaged and what is not copied.
func (w *damagedStore) report(out *Repaired) {
	for _, why := range w.found.Doubts {
		if !w.files.bad(why) {
			out.note("index.db is not used: %v", why)
		}
	}
	for _, d := range w.found.Log.Damage {
		w.files.bad(d)
	}
	for _, s := range w.segments.Segments() {
		if _, err := w.segments.Descriptor(s.ID); !errors.Is(err, segments.ErrRemains) { // a crash leaves those
			w.files.bad(err)
		}
	}
	for _, d := range w.found.Damage {
		w.files.bad(d)
	}
	out.Unknown = strings.Join(w.unknown(), "; ")
	for _, f := range w.files {
		out.Files = append(out.Files, *f)
		out.Lost, out.LostBytes = out.Lost+f.Lost, out.LostBytes+f.LostBytes
	}
	slices.SortFunc(out.Files, func(a, b DamagedFile) int { return cmp.Compare(a.Path, b.Path) })
}

// unknown says what nobody can know any more.
func (w *damagedStore) unknown() (why []string) {
	log := w.found.Log
	switch {
	case !log.HasFirst && len(w.found.Applied.Extra) == 0:
		why = append(why, "neither log nor index can be read: refs are lost, and what was deleted is back if its bytes were not yet destroyed")
	case !log.HasFirst:
		why = append(why, "the log, or its end, is lost: refs and deletions are as of the last checkpoint; "+
			"what was deleted after it is back if its bytes were not yet destroyed")
	case log.Damaged():
		why = append(why, "the log is damaged, or ends in what a crash leaves: what the frames that are lost said of refs and deletions is not known; "+
			"what they deleted is back if its bytes were not yet destroyed")
	}
	missing := 0 // segments that were begun before the log, and that nothing says to be given up
	for id := uint64(1); w.found.Rebuilt && id < log.First.Next.Segment; id++ {
		if !w.found.Catalog.IsUnlinked(id) && !w.segments.Has(id) {
			missing++
		}
	}
	if unclear := len(w.found.Damage); unclear+missing > 0 {
		why = append(why, fmt.Sprintf("there is no index.db to tell whether records are lost: segments have %s, and %s missing",
			damage.Count(unclear, "damaged place"), damage.Count(missing, "segment")))
	}
	for _, name := range []string{folder.SegmentsDir, folder.SessionsDir} {
		if w.disk.useless[w.path(name)] {
			why = append(why, "the folder "+name+" cannot be read: what was in it is not known")
		}
	}
	return why
}
