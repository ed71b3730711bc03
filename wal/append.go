package wal

import (
	"fmt"
	"io"
)

// keepBufBytes bounds the buffer that is kept between appends.
const keepBufBytes = 1 << 20

// Append writes one frame of the caller's kind (2 to 255) and returns its number. When it returns, the frame is in the
// page cache: it survives this process, and a power cut after [Log.Sync]. payload is copied.
//
// An error other than one that answers to ErrPoisoned leaves the log as it was, and the number unused: vfs.ErrNoSpace when
// the disk has no room to keep half a step reserved behind the frame (a [Log.Rotate] into the spare file may still succeed),
// errTooLarge, ErrClosed.
func (l *Log) Append(kind uint8, payload []byte) (uint64, error) {
	return l.append(kind, payload, l.o.PreallocBytes/2)
}

// AppendReserved is Append for frames that make room, evictions above all: it may use the reserved space to its end, which
// Append leaves, so that they can be written on a full disk.
func (l *Log) AppendReserved(kind uint8, payload []byte) (uint64, error) {
	return l.append(kind, payload, 0)
}

// AppendBefore is AppendReserved that leaves room for a frame with a payload of n bytes, which is to follow.
func (l *Log) AppendBefore(kind uint8, payload []byte, n int) (uint64, error) {
	return l.append(kind, payload, frameBytes(uint32(frameHead+n)))
}

// append leaves keep bytes reserved behind the frame.
func (l *Log) append(kind uint8, payload []byte, keep int64) (uint64, error) {
	if kind <= KindSnapshot {
		return 0, fmt.Errorf("wal: append: kind %d is reserved", kind)
	}
	if len(payload) > MaxPayload {
		return 0, fmt.Errorf("wal: append: %w: %d bytes, at most %d", errTooLarge, len(payload), MaxPayload)
	}
	if err := l.begin(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return 0, err
	}
	lsn := l.last.Load() + 1
	b := appendFrame(l.buf[:0], l.seed, frameHeader{
		kind: kind, file: l.id, offset: uint64(l.end), lsn: lsn, durable: l.durable.Load(), boot: l.o.Boot,
	}, payload)
	if cap(b) <= keepBufBytes {
		l.buf = b
	}
	if err := l.reserve(int64(len(b)), keep); err != nil {
		return 0, fmt.Errorf("wal: append LSN %d: %w", lsn, err)
	}
	if err := writeAll(l.file, b, l.end); err != nil {
		return 0, l.undo(fmt.Errorf("wal: append LSN %d: %w", lsn, err))
	}
	l.end += int64(len(b))
	l.last.Store(lsn)
	if l.spare.bytes < l.spareBytes() {
		l.prepareSpare()
	}
	return lsn, nil
}

// writeAll is one write; one that wrote less has failed.
func writeAll(f io.WriterAt, b []byte, off int64) error {
	n, err := f.WriteAt(b, off)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// undo takes back what a failed write may have left behind the end.
func (l *Log) undo(cause error) error {
	if err := l.file.Truncate(l.end); err != nil {
		return l.poisonWith(fmt.Errorf("%w (and it cannot be undone: %w)", cause, err))
	}
	if err := l.file.Truncate(l.end + tailBytes); err != nil {
		l.o.Logger.Info("a log file ends without zeros", "file", l.file.Name(), "error", err)
	}
	l.undone.Store(true)
	l.hold(l.end)
	l.o.Logger.Warn("log append failed and was undone", "error", cause)
	return cause
}

// reserve sees to it that n bytes behind the end are reserved, and keep bytes more, or half a step where the disk has room.
func (l *Log) reserve(n, keep int64) error {
	step := l.o.PreallocBytes
	need := l.end + n + tailBytes
	if need+step/2 <= l.reservedBytes {
		return nil
	}
	ahead := roundUp(need+step/2, step)
	err := l.file.Allocate(l.reservedBytes, ahead-l.reservedBytes)
	if err == nil {
		l.hold(ahead)
		return nil
	}
	if need+keep <= l.reservedBytes {
		return nil
	}
	least := roundUp(need+keep, blockBytes)
	if err := l.file.Allocate(l.reservedBytes, least-l.reservedBytes); err != nil {
		return err
	}
	l.hold(least)
	return nil
}

// hold notes that the current file occupies n bytes now.
func (l *Log) hold(n int64) {
	l.taken.Add(n - l.reservedBytes)
	l.reservedBytes = n
}
