package segments

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Options say where a store's segments are and how new ones are made.
type Options struct {
	FS   vfs.FS // nil: the operating system
	Dir  string // the folder of the segment files; it must exist unless ReadOnly
	UUID kv.UUID
	Seed kv.Seed

	SegmentBytes int64 // size of a new segment; 0: 64 MiB. A larger record gets a segment of its own
	AllocateStep int64 // disk blocks are reserved in steps of so many bytes; 0: 4 MiB
	// Ahead is asked before disk blocks are reserved beyond the end of a record, and told when that is done. Nil: always.
	// It must not call the Set's methods that write.
	Ahead func(bytes int64) (done func(), ok bool)
	// Poisoned, if not nil, is called when an fsync has failed; it must not call the Set's methods.
	Poisoned func()
	ReadOnly bool // nothing is ever written
	// Overtaken is asked by a reader where a segment is missing: another process may have unlinked it since. Nil: none does.
	Overtaken func() bool
	Logger    *slog.Logger // nil: nothing is logged
}

// Validate returns an error that names the option at fault.
func (o *Options) Validate() error {
	switch {
	case o.Dir == "":
		return errors.New("segments: option Dir is empty")
	case o.SegmentBytes < 0 || o.SegmentBytes > maxRecordBytes:
		return fmt.Errorf("segments: option SegmentBytes is %d, expected 0 to %d", o.SegmentBytes, int64(maxRecordBytes))
	case o.AllocateStep < 0 || o.AllocateStep > maxRecordBytes:
		return fmt.Errorf("segments: option AllocateStep is %d, expected 0 to %d", o.AllocateStep, int64(maxRecordBytes))
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.AllocateStep == 0 {
		o.AllocateStep = 4 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
