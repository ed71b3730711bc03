package check

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/db/internal/tally"
	"github.com/dormousekv/dormouse/internal/damage"
)

// Report is what Run found.
type Report struct {
	Damage  []*damage.Error // bytes that are not what was written, in files that are still needed
	Notes   []string        // odd things that cost nothing: a torn end after a crash, a missing Bloom filter, a strange file
	Files   int
	Bytes   int64 // checked
	Records int   // live; every byte of each was compared with its checksum
}

// verifier is a check under way.
type verifier struct {
	e        *engine.Engine
	progress func(tally.Progress)
	out      Report
	total    int64
	unsealed []recovery.Leftover // when the check began: a checkpoint may seal them meanwhile
	unread   map[uint64]error    // by segment, why it could not be read, which says nothing about its bytes
	missing  map[uint64]bool     // segments without a file that were reported

	unreadSessions []error // why sessions could not be read
	foreignBloom   bool    // a refusal names the Bloom filter's file
}

func newVerifier(e *engine.Engine, progress func(tally.Progress)) *verifier {
	return &verifier{e: e, progress: progress, unread: map[uint64]error{}, missing: map[uint64]bool{}}
}

func (v *verifier) report(d *damage.Error) { v.out.Damage = append(v.out.Damage, d) }

func (v *verifier) note(format string, args ...any) {
	v.out.Notes = append(v.out.Notes, fmt.Sprintf(format, args...))
}

func (v *verifier) read(n int64) {
	v.out.Bytes += n
	if v.progress != nil {
		v.progress(tally.Progress{What: "verify", Done: v.out.Bytes, Total: max(v.total, v.out.Bytes)})
	}
}

// skip keeps why a segment, or a record in it, could not be read.
func (v *verifier) skip(segment uint64, err error) {
	if v.unread[segment] == nil {
		v.unread[segment] = err
	}
}

// passedBy wakes the worker if bytes waited for the check to be destroyed.
func (v *verifier) passedBy() {
	if v.e.Segments.Ripe() {
		v.e.Signal()
	}
}

// unreadFiles returns an error that names what could not be read.
func (v *verifier) unreadFiles() error {
	unread := v.unreadSessions
	for _, id := range slices.Sorted(maps.Keys(v.unread)) {
		unread = append(unread, v.unread[id])
	}
	return errors.Join(unread...)
}
