package wal

import (
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// Verify reads every byte of every log file of a closed store: headers, frames, their numbers, and that what is reserved
// behind the last frame is zero. It changes nothing and goes on after damage, and behind what the disk cannot read.
//
// An end that a crash may have left is reported too, with [ErrTorn] as its cause, because a damaged last frame looks the
// same. progress gets the bytes checked since it was called last; it may be nil. The errors are those of [Replay].
func Verify(o Options, report func(*damage.Error), progress func(bytes int64)) error {
	if err := o.Validate(); err != nil {
		return err
	}
	p := replay{
		o:      o.withDefaults(),
		fn:     func(Frame) error { return nil },
		report: report,
		torn: func(e *damage.Error) {
			torn := *e
			torn.Err = fmt.Errorf("%w, or damage to what was not yet durable", ErrTorn)
			if e.Err != nil {
				torn.Err = errors.Join(torn.Err, e.Err)
			}
			report(&torn)
		},
		read:    progress,
		lenient: true,
	}
	return p.run()
}

// Unproven returns ErrForeign if a log file has no sound header of this log, and is not empty either. It is for who has no other reason to
// take the files for this log's.
func Unproven(o Options) error {
	o = o.withDefaults()
	ids, err := o.list()
	if err != nil {
		return err
	}
	for _, id := range ids {
		head, err := vfs.Head(o.FS, o.path(id))
		if err != nil {
			return err
		}
		if vfs.Blank(head) {
			continue
		}
		if _, err := decodeHeader(head, o.path(id), o.UUID, id); err != nil {
			return fmt.Errorf("%w: %w", ErrForeign, err)
		}
	}
	return nil
}
