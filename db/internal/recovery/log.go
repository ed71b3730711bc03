package recovery

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// Log is the log of a store, read.
type Log struct {
	wal.Recovered
	Frames   []Frame
	First    oplog.Snapshot // head of the oldest log file: what was swept is what lies below its ends
	HasFirst bool
	Barrier  uint64 // segments and log had been durable up to this frame

	lost  bool // frames are, though no damage says so
	names *Names
}

// Frame is a frame of the log, and what it says. Its payload is not kept.
type Frame struct {
	wal.Frame
	Op  oplog.Op
	Err error // there is no Op
}

// ReadLog reads every frame into memory. Between two checkpoints there are never more than a few megabytes. A frame that cannot be read, though
// its checksum is right, was written by another release or another program: its Err says so.
func ReadLog(o wal.Options) (*Log, error) {
	l := &Log{}
	var err error
	l.Recovered, err = wal.Replay(o, func(f wal.Frame) error {
		op, err := readFrame(f)
		f.Payload = nil
		l.Frames = append(l.Frames, Frame{f, op, err})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, f := range l.Frames {
		if head, ok := f.Op.(oplog.Snapshot); ok && !l.HasFirst {
			l.First, l.HasFirst = head, true
		}
		if b, ok := f.Op.(oplog.Barrier); ok {
			l.Barrier = max(l.Barrier, b.LSN)
		}
	}
	return l, nil
}

// salvage takes the log for damaged where frames may be lost, so that what they put is kept. Such frames make no sense though their checksum is
// right, or they stood at a torn end. They may have been acknowledged.
func (l *Log) salvage() {
	l.Frames = slices.DeleteFunc(l.Frames, func(f Frame) bool {
		var bad *damage.Error
		if !errors.As(f.Err, &bad) { // another release's ends the run
			return false
		}
		l.Damage = append(l.Damage, bad)
		return true
	})
	l.lost = l.Torn
}

func readFrame(f wal.Frame) (oplog.Op, error) {
	op, err := oplog.Decode(f.Kind, f.Payload)
	switch {
	case errors.Is(err, vfs.ErrVersion):
		return nil, fmt.Errorf("%s: log frame %d of kind %d at offset %d: %w", f.File, f.LSN, f.Kind, f.Offset, err)
	case err != nil:
		return nil, damage.Wrap(f.File, f.Offset, fmt.Sprintf("log frame %d of kind %d", f.LSN, f.Kind), err)
	}
	return op, nil
}

// ReadHead decodes a copy of a log head.
func ReadHead(b []byte) (head oplog.Snapshot, err error) {
	op, err := oplog.Decode(oplog.KindSnapshot, b)
	if err == nil {
		head = op.(oplog.Snapshot)
	}
	return head, err
}

// Damaged reports whether frames of the log are lost.
func (l *Log) Damaged() bool { return len(l.Damage) > 0 || l.lost }

// Retired reports whether the log says that a model was retired.
func (l *Log) Retired(fp kv.Fingerprint) bool {
	for _, f := range l.Frames {
		if op, ok := f.Op.(oplog.Retire); ok && op.Model == fp {
			return true
		}
	}
	return false
}

// Young reports whether the record at l was written since the oldest log file began, so that a frame names it if it was
// acknowledged.
func (l *Log) Young(at loc.Loc) bool {
	if !l.HasFirst {
		return false
	}
	end, open := l.First.Ends[at.Segment]
	return open && at.Offset >= end || !open && at.Segment >= l.First.Next.Segment
}

// Names are the places of records that the log names.
type Names struct {
	Put  map[loc.Loc]uint64 // something was put there, or moved to, by the last frame that says so
	Dead map[loc.Loc]bool   // it was given up
}

// Names lists them.
func (l *Log) Names() Names {
	if l.names != nil {
		return *l.names
	}
	n := Names{Put: map[loc.Loc]uint64{}, Dead: map[loc.Loc]bool{}}
	l.places(func(at loc.Loc, is oplog.Use, lsn uint64) {
		switch is {
		case oplog.UseStored:
			n.Put[at] = lsn
		case oplog.UseDead:
			n.Dead[at] = true
		}
	})
	l.names = &n
	return n
}

// places calls see with each place that a frame names.
func (l *Log) places(see func(at loc.Loc, is oplog.Use, lsn uint64)) {
	for _, f := range l.Frames {
		if f.Op != nil {
			f.Op.Places(func(at loc.Loc, is oplog.Use) { see(at, is, f.LSN) })
		}
	}
}

// Tombstones are the records that the newest head of the log, or extra, which is the index's copy of one, lists as dead, but for those that
// the log names: what became of these follows from that. None of the others comes back to life.
func (l *Log) Tombstones(extra []byte) map[loc.Loc]bool {
	out, named := map[loc.Loc]bool{}, l.Names()
	add := func(head *oplog.Snapshot) {
		clear(out)
		for _, at := range head.Tombstones {
			if _, put := named.Put[at]; !put && !named.Dead[at] {
				out[at] = true
			}
		}
	}
	if head, err := ReadHead(extra); err == nil {
		add(&head)
	}
	for _, f := range l.Frames {
		if head, ok := f.Op.(oplog.Snapshot); ok {
			add(&head)
		}
	}
	return out
}
