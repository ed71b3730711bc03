package wal

import (
	"errors"
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/internal/damage"
)

// logFile is one log file that is being read.
type logFile struct {
	*reader
	id   uint64
	seed uint64

	first   uint64        // LSN of its first frame; 0 if nothing tells
	headErr *damage.Error // what is wrong with its header, if something is
}

// openLogFile opens a log file and reads its header. A damaged header is no error: the frames name their place themselves,
// and a file in which there are none, whatever is in their place, is one more that was lost. One that cannot be read is
// an error, unless the reader is lenient.
func openLogFile(o Options, id uint64, lenient bool) (*logFile, error) {
	r, err := openReader(o, o.path(id), lenient)
	if err != nil {
		return nil, err
	}
	f := &logFile{reader: r, id: id, seed: frameSeed(o.UUID)}
	h, err := decodeHeader(r.window(0, min(headerBytes, r.size)), r.name, o.UUID, id)
	if err == nil {
		f.first = h.first
	} else if errors.As(err, &f.headErr) {
		err = nil
		if fr, ok := f.seek(headerBytes); ok && fr.kind == KindSnapshot {
			f.first = fr.lsn + 1
		}
	}
	if r.err != nil { // that, and not what zeros say
		err = r.err
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return f, nil
}

// frame is a frame whose place and checksum are right. Its payload is valid until the next read of the file.
type frame struct {
	frameHeader
	payload []byte
}

func (f frame) start() int64 { return int64(f.offset) }
func (f frame) end() int64   { return int64(f.offset) + frameBytes(f.length) }

// frame reads the frame at off, or says what is there instead. One of another release is no frame, and ends the reading with f.err.
func (f *logFile) frame(off int64) (frame, *damage.Error) {
	bad := func(what string, expected, found any) (frame, *damage.Error) {
		return frame{}, damage.New(f.name, off, what, expected, found)
	}
	if f.size-off < minFrame {
		return bad("frame", fmt.Sprintf("at least %d bytes", minFrame), fmt.Sprintf("%d before the end of the file", max(f.size-off, 0)))
	}
	h := decodeFrameHeader(f.window(off, minFrame))
	switch {
	case h.length < frameHead || h.length > frameHead+MaxPayload:
		return bad("frame length", fmt.Sprintf("%d to %d", frameHead, frameHead+MaxPayload), h.length)
	case frameBytes(h.length) > f.size-off:
		return bad("frame length", fmt.Sprintf("a frame of at most %d bytes, to the end of the file", f.size-off), frameBytes(h.length))
	case h.file != f.id:
		return bad("frame file id", f.id, h.file)
	case h.offset != uint64(off):
		return bad("frame offset", off, h.offset)
	case h.kind == 0:
		return bad("frame kind", "1 to 255", 0)
	case h.lsn == math.MaxUint64 || h.lsn == 0 && h.kind != KindSnapshot:
		return bad("frame LSN", "1 to 2^64-2", h.lsn)
	}
	n := frameBytes(h.length)
	b := f.window(off, n)[:n]
	if want, found, ok := checkFrame(f.seed, b); !ok {
		return bad("frame", fmt.Sprintf("checksum %016x", want), fmt.Sprintf("%016x", found))
	}
	if err := reservedInFrame(f.name, off, b, h.length); err != nil {
		if f.err == nil {
			f.err = err
		}
		return bad("frame", "zeros in its reserved bytes", err)
	}
	return frame{frameHeader: h, payload: b[frameHead:h.length:h.length]}, nil
}

// seek returns the first frame at off or behind it.
func (f *logFile) seek(off int64) (frame, bool) {
	off = roundUp(off, 8)
	for f.size-off >= minFrame {
		b := f.window(off, minFrame)
		i := 0
		for i+minFrame <= len(b) && !couldBeFrame(b[i:], f.id, uint64(off)+uint64(i)) {
			i += 8
		}
		off += int64(i)
		if i+minFrame > len(b) {
			continue
		}
		if fr, bad := f.frame(off); bad == nil {
			return fr, true
		}
		off += 8
	}
	return frame{}, false
}

// before is the number of the frame before this one.
func (f frame) before() uint64 {
	if f.kind == KindSnapshot { // it takes no number
		return f.lsn
	}
	return f.lsn - 1
}

// proven is the highest LSN of which a frame at off or behind it shows that it and all before it had been whole: it says that they
// were durable, or it was written in this boot. Then a frame is in memory, synced or not, before anything is written behind it.
func (f *logFile) proven(off int64, boot uint64) uint64 {
	var lsn uint64
	for fr, ok := f.seek(off); ok; fr, ok = f.seek(fr.end()) {
		lsn = max(lsn, fr.durable)
		if boot != 0 && fr.boot == boot {
			lsn = max(lsn, fr.lsn)
		}
	}
	return lsn
}

// goesOn reports whether the first good frame at off or behind it is the one that should have lsn: then what lies before it
// took no number, and is a snapshot, which was durable before the next frame.
func (f *logFile) goesOn(off int64, lsn uint64) bool {
	fr, ok := f.seek(off)
	return ok && fr.before()+1 == lsn
}
