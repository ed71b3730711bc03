package state

import "fmt"

// Size is the length of a file with the tokens of file and the cells of its sections and checkpoints.
func (f FileFormat) Size(file *File) int {
	n := 12 + 4*len(file.Tokens) + f.State.bodySize(file.State.cells()) + f.partSize(file.Recurrent)
	if !file.Plain {
		n += 4 * packedWords
	}
	if file.Trailer {
		n += 12
	}
	for _, c := range file.Checkpoints {
		n += checkpointBytes + f.checkpointSize(c) + len(c.Draft) + len(c.Spec)
	}
	return n
}

func (f FileFormat) checkpointSize(c Checkpoint) int {
	return f.tail().Size(c.State.cells()) + f.partSize(c.Recurrent)
}

func (f FileFormat) partSize(part []byte) int {
	if f.Recurrent == nil || part != nil {
		return len(part)
	}
	return f.Recurrent.Size()
}

// Build lays out a file in buf if that is large enough, else in new memory, and returns it and its bytes. Of file it takes the tokens,
// the cells of the sections and checkpoints, and what else there is besides rows. All is written but the rows, which are whatever the
// memory held: they are written through the [Section.Rows] of the file that it returns. file keeps its own, and may be
// made of a State whose sections have nothing but Cells. A recurrent part is copied; where it is nil and the format has one, there is room for one
// with a cell, for the caller to write. What does not fit the format, and checkpoints without Trailer, are the caller's mistake and panic.
func (f FileFormat) Build(buf []byte, file *File) (*File, []byte) {
	f.mustHold(file)
	n := f.Size(file)
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	w := writer{b: buf[:n]}
	w.u32(fileMagic)
	w.u32(f.Version)
	w.tokens(file)
	out := *file
	out.State = w.sections(f.State, file.State.Sequence, file.State.cells())
	out.Recurrent = w.part(f, file.Recurrent)
	if file.Trailer {
		w.u32(trailerMagic)
		w.u32(trailerVersion)
		w.u32(uint32(len(file.Checkpoints)))
	}
	out.Checkpoints = nil
	for _, c := range file.Checkpoints {
		w.u64(uint64(c.Tokens))
		w.u32(uint32(c.PosMin))
		w.u32(uint32(c.PosMax))
		w.u64(uint64(f.checkpointSize(c)))
		c.State = w.blob(f.tail(), c.State.Sequence, c.State.cells())
		c.Recurrent = w.part(f, c.Recurrent)
		c.Draft, c.Spec = w.sized(c.Draft), w.sized(c.Spec)
		out.Checkpoints = append(out.Checkpoints, c)
	}
	return &out, w.b
}

func (f FileFormat) mustHold(file *File) {
	f.State.mustHold(file.State.cells())
	if len(file.Checkpoints) > 0 && !file.Trailer {
		panic(fmt.Sprintf("state: %d checkpoints in a file without a trailer", len(file.Checkpoints)))
	}
	for _, c := range file.Checkpoints {
		f.tail().mustHold(c.State.cells())
	}
	if f.Recurrent == nil && file.Recurrent != nil {
		panic("state: a recurrent part in a file of a model without one")
	}
}

func (w *writer) part(f FileFormat, part []byte) []byte {
	if f.Recurrent == nil {
		return nil
	}
	out := w.skip(f.partSize(part))
	copy(out, part)
	return out
}

func (w *writer) tokens(file *File) {
	if file.Plain {
		w.u32(uint32(len(file.Tokens)))
	} else {
		mark := int32(packedMark)
		w.u32(uint32(len(file.Tokens) + packedWords))
		w.u32(uint32(mark))
		w.u32(packedVersion)
		w.u32(uint32(len(file.Tokens)))
	}
	for _, t := range file.Tokens {
		w.u32(uint32(t))
	}
	if !file.Plain {
		w.u32(0)
	}
}

func (w *writer) sized(b []byte) []byte {
	w.u64(uint64(len(b)))
	out := w.skip(len(b))
	copy(out, b)
	return out
}

// copyRows fills a file with the rows of another one that has the same cells and format.
func (f *File) copyRows(from *File) {
	f.State.copyRows(from.State)
	for i := range f.Checkpoints {
		f.Checkpoints[i].State.copyRows(from.Checkpoints[i].State)
	}
}
