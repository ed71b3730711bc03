package segments

import "github.com/dormousekv/dormouse/internal/vfs"

// holes keeps a walk out of what occupies no disk: a tmpfs fills a hole that is read through the map, so that looking over
// the segments would take back what destroying records gave. Nothing is punched, and nothing written that the walk
// may see, while it goes on.
type holes struct {
	file       vfs.Sparse // nil: nothing is known, all is read
	data, hole int64      // the stretch that was asked for last
	asked      int64      // [asked, data) is a hole
}

func holesOf(f vfs.File) holes {
	file, _ := f.(vfs.Sparse)
	return holes{file: file}
}

// next returns the first offset at or behind off, and before end, that is worth reading, or end.
func (h *holes) next(off, end int64) int64 {
	if h.file == nil || off >= end {
		return min(off, end)
	}
	if off < h.asked || off >= h.hole {
		data, hole, ok := h.file.NextData(off)
		if !ok || hole < data || data < off || hole == off { // at last: the file was cut, and ends here
			h.file = nil
			return off
		}
		h.asked, h.data, h.hole = off, data, hole
	}
	return min(max(off, h.data), end)
}

// nonZero returns the offset of the first byte of [from, to) that is not zero, or -1.
func (im *image) nonZero(from, to int64) int64 {
	for from = im.holes.next(from, to); from < to; from = im.holes.next(from, to) {
		part := to
		if im.holes.file != nil {
			part = min(to, im.holes.hole)
		}
		if i := vfs.FirstNonZero(im.b[from:part]); i >= 0 {
			return from + int64(i)
		}
		from = part
	}
	return -1
}
