package wal

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Limits of the log.
const (
	MaxPayload           = 64 << 20 // bytes of a frame's payload, and of a snapshot
	DefaultPreallocBytes = 1 << 20
	maxPreallocBytes     = 1 << 30
	blockBytes           = 4096 // reservations are multiples of it
)

// Options says where the log is and whose.
type Options struct {
	FS   vfs.FS   // nil: the operating system
	Dir  string   // the folder of the log files; it must exist for Create
	UUID [16]byte // of the store: a log file with another is refused with ErrForeign

	// PreallocBytes is the step in which file space is reserved ahead, rounded up to 4 KiB; 0 means 1 MiB. Between half a
	// step and one and a half are reserved in the current file, and a step and a head's length in the spare.
	PreallocBytes int64

	// Boot tells boots of the system apart; 0: nothing does. It is written into each frame. To [Replay] and [Verify] it is the boot whose
	// frames are all as they were written, synced or not: give 0 if an fsync has failed since.
	Boot uint64

	// Poisoned, if not nil, is called when the log has become unusable; it must not call the Log's methods.
	Poisoned func()

	Logger *slog.Logger // nil means none
}

// Validate says what is wrong with o.
func (o Options) Validate() error {
	if o.Dir == "" {
		return errors.New("wal: Options.Dir is empty")
	}
	if o.PreallocBytes < 0 || o.PreallocBytes > maxPreallocBytes {
		return fmt.Errorf("wal: Options.PreallocBytes is %d, must be 0 to %d", o.PreallocBytes, maxPreallocBytes)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.PreallocBytes == 0 {
		o.PreallocBytes = DefaultPreallocBytes
	}
	o.PreallocBytes = roundUp(o.PreallocBytes, blockBytes)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
