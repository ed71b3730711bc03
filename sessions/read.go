package sessions

import (
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// Contents is what a file holds.
type Contents struct {
	Head   Head
	Frames []Frame
	End    int64  // of the last sound frame
	Size   int64  // of the file: from End on there is what a crash tore
	Torn   string // what is wrong there; empty if there is nothing

	proven int64 // up to here head and frames say that the file was durable
}

// Read reads a scope's file. Of one that is damaged it returns the frames before the damage, and a *damage.Error with file and offset; of
// one whose head is damaged, none. fs.ErrNotExist if there is none, or an empty one: that is being deleted. vfs.ErrVersion, vfs.ErrForeign.
func Read(o Options, scope [16]byte) (Contents, error) {
	o = o.withDefaults()
	f, err := o.FS.Open(o.Path(scope), true)
	if err != nil {
		return Contents{}, err
	}
	defer f.Close()
	return read(o, f, scope)
}

func read(o Options, f vfs.File, scope [16]byte) (Contents, error) {
	w, err := newWalk(o, f, scope)
	if err != nil {
		return Contents{}, err
	}
	c := Contents{Head: w.head, Size: w.size, proven: int64(w.head.made)}
	for w.next() {
		if w.at.kind != kindDurable {
			c.Frames = append(c.Frames, Frame{Kind: w.at.kind, Body: w.body})
			c.proven = max(c.proven, int64(w.at.durable))
		} else if int64(w.at.durable) == w.off-minFrame {
			c.proven = w.off // of that frame itself nothing is lost
		}
	}
	c.End, c.Torn = w.off, w.torn
	return c, w.err
}

// Peek is Read of the head and the first frame; the frame is of kind 0 if there is none.
func Peek(o Options, scope [16]byte) (h Head, first Frame, err error) {
	o = o.withDefaults()
	f, err := o.FS.Open(o.Path(scope), true)
	if err != nil {
		return Head{}, Frame{}, err
	}
	defer f.Close()
	w, err := newWalk(o, f, scope)
	if err != nil {
		return Head{}, Frame{}, err
	}
	for w.next() {
		if w.at.kind != kindDurable {
			return w.head, Frame{Kind: w.at.kind, Body: w.body}, nil
		}
	}
	return w.head, Frame{}, w.err
}

// walk goes through a file, frame by frame.
type walk struct {
	f    vfs.File
	size int64
	head Head
	seed uint64

	off  int64 // where the next frame begins
	at   frameAt
	body []byte // of the frame before off; the caller may keep it
	torn string // why no frame begins at off, though the file goes on
	err  error
}

func newWalk(o Options, f vfs.File, scope [16]byte) (*walk, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size == 0 {
		return nil, &fs.PathError{Op: "open", Path: f.Name(), Err: fs.ErrNotExist}
	}
	b := make([]byte, min(headBytes, info.Size))
	if err := readFull(f, b, 0); err != nil {
		return nil, err
	}
	h, err := decodeHead(b, f.Name(), o.UUID, scope)
	if err != nil {
		return nil, err
	}
	return &walk{f: f, size: info.Size, head: h, seed: frameSeed(h.ID), off: headBytes}, nil
}

// next reads the next frame; false: there is none, and torn or err may say why.
func (w *walk) next() bool {
	if w.off == w.size || w.torn != "" || w.err != nil {
		return false
	}
	at, body, why, err := w.frame(w.off, nil)
	switch {
	case err != nil:
		w.err = err
		return false
	case why != "":
		w.judge(why)
		return false
	}
	w.at, w.body = at, body
	w.off += frameBytes(int64(at.length))
	return true
}

// frame reads the frame at off, or says why there is none. The body is in buf, if that is not nil, until it is used again.
func (w *walk) frame(off int64, buf *[]byte) (at frameAt, body []byte, why string, err error) {
	left := w.size - off
	if left < minFrame {
		return at, nil, fmt.Sprintf("%d bytes", left), nil
	}
	var b [frameHead]byte
	if err := readFull(w.f, b[:], off); err != nil {
		return at, nil, "", err
	}
	at = decodeFrameHead(b[:])
	switch n := frameBytes(int64(at.length)); {
	case at.offset != uint64(off):
		return at, nil, fmt.Sprintf("one for offset %d", at.offset), nil
	case at.length > MaxBody:
		return at, nil, fmt.Sprintf("one with a body of %d bytes, at most %d", at.length, MaxBody), nil
	case n > left:
		return at, nil, fmt.Sprintf("%d bytes of one of %d", left, n), nil
	}
	n := frameBytes(int64(at.length))
	if buf == nil {
		buf = new([]byte)
	}
	*buf = slices.Grow((*buf)[:0], int(n))[:n]
	whole := *buf
	if err := readFull(w.f, whole, off); err != nil {
		return at, nil, "", err
	}
	if want, found := checkFrame(w.seed, whole); want != found {
		return at, nil, fmt.Sprintf("checksum %016x, computed %016x", want, found), nil
	}
	end := frameHead + int64(at.length)
	for _, r := range [][2]int64{{5, 8}, {end, int64(len(whole)) - frameTail}} {
		if err := damage.Reserved(w.f.Name(), off+r[0], whole[r[0]:r[1]], vfs.ErrVersion); err != nil {
			return at, nil, "", err
		}
	}
	return at, whole[frameHead:end:end], "", nil
}

// judge decides whether what lies at off is damage: something says that it had been durable, the head or a later frame. Else a crash tore
// it, with what follows.
func (w *walk) judge(why string) {
	bad := damage.New(w.f.Name(), w.off, "session frame", "a frame", why)
	if w.head.made > uint64(w.off) {
		bad.Expected = fmt.Sprintf("a frame: the file was durable up to %d when it was made", w.head.made)
		w.err = bad
		return
	}
	var window [64 << 10]byte
	var buf []byte
	for from := w.off + 8; from+minFrame <= w.size; {
		b := window[:min(int64(len(window)), w.size-from)]
		if err := readFull(w.f, b, from); err != nil {
			w.err = err
			return
		}
		step := int64(len(b)-frameHead)/8*8 + 8 // so many bytes begin frames whose heads are in b
		for i := int64(0); i < step; i += 8 {
			if binary.LittleEndian.Uint64(b[i+8:]) != uint64(from+i) {
				continue
			}
			at, _, why, err := w.frame(from+i, &buf)
			if err != nil {
				w.err = err
				return
			}
			if why == "" && at.durable > uint64(w.off) {
				bad.Expected = fmt.Sprintf("a frame: that at offset %d says that the file was durable up to %d", from+i, at.durable)
				w.err = bad
				return
			}
		}
		from += step
	}
	w.torn = "found " + why
}

func readFull(f vfs.File, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: offset %d: %w", f.Name(), off+int64(n), err)
}
