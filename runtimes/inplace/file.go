package inplace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	mmap "github.com/edsrzf/mmap-go"
)

// Recovered says what opening a ring found.
type Recovered struct {
	New     bool    // there was no file, or one of another shape or model, which is gone
	Turns   int     // whole ones, which nobody has pinned yet
	Rows    int     // theirs
	Torn    int     // rows of turns that were being computed, written or taken apart: they are free
	Damaged []error // of turns that were said to be whole and are not, each a [*damage.Error] with file and offset: they are free, too
}

// Open maps the ring of a file, which it makes if there is none, or one of another shape or model. It belongs to this Ring alone until
// Close; vfs.ErrLocked says that somebody else has it. A file that has no room on the disk is vfs.ErrNoSpace; one that is no ring is a
// *NotARingError, and a damaged header a *damage.Error: then nothing is changed.
//
// Whoever makes the file shorter while it is mapped ends the process.
func Open(name string, s Shape) (_ *Ring, got Recovered, err error) {
	if err := s.Validate(); err != nil {
		return nil, got, err
	}
	s = s.filled()
	lock, err := vfs.AcquireLock(name+".lock", false)
	if err != nil {
		return nil, got, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Release())
		}
	}()
	have, err := readShape(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		have, err = Shape{}, nil
	case err != nil:
		return nil, got, err
	}
	if have != s {
		got.New = true
		if err := create(name, s); err != nil {
			return nil, got, fmt.Errorf("inplace: making a ring of %d bytes: %w", s.bytes(), err)
		}
	}
	if err := reserveAgain(name, s.bytes()); err != nil {
		return nil, got, fmt.Errorf("inplace: a ring of %d bytes: %w", s.bytes(), err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, got, err
	}
	defer f.Close()
	mem, err := mmap.MapRegion(f, int(s.bytes()), mmap.RDWR, 0, 0)
	if err != nil {
		return nil, got, &fs.PathError{Op: "map", Path: name, Err: err}
	}
	r := ringOn(name, mem, s)
	r.close = func() error { return errors.Join(mem.Unmap(), lock.Release()) }
	r.recover(&got)
	return r, got, nil
}

// NewMemory is a ring in this process's memory, which ends with it.
func NewMemory(s Shape) (*Ring, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s = s.filled()
	mem := make([]byte, s.bytes())
	s.encodeHeader(mem)
	r := ringOn("", mem, s)
	r.close = func() error { return nil }
	r.recover(&Recovered{})
	return r, nil
}

// readShape is the shape of the ring in a file.
func readShape(name string) (Shape, error) {
	f, err := vfs.OS.Open(name, true)
	if err != nil {
		return Shape{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Shape{}, err
	}
	head := make([]byte, turnsAt)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return Shape{}, err
	}
	if n < turnsAt && (n < 8 || string(head[:8]) != ringMagic) {
		return Shape{}, &NotARingError{File: name, Found: head[:min(n, 8)]}
	}
	return decodeHeader(name, head[:n], info.Size)
}

// create makes an empty ring whose every byte has room on the disk, in the place of what is there.
func create(name string, s Shape) error {
	part := name + ".new"
	if err := vfs.OS.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := vfs.OS.Create(part)
	if err != nil {
		return err
	}
	err = reserve(f, s.bytes())
	if err == nil {
		head := make([]byte, turnsAt)
		s.encodeHeader(head)
		_, err = f.WriteAt(head, 0)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = vfs.OS.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, vfs.OS.Remove(part))
	}
	return nil
}

// reserve gives every byte of the file room on the disk: writes through a map of a file with holes fault when the disk is full.
func reserve(f vfs.File, size int64) error {
	if err := f.Allocate(0, size); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil || info.Allocated >= size {
		return err
	}
	buf := make([]byte, min(size, 1<<20)) // the system cannot reserve, so everything is written once
	for off := int64(0); off < size; off += int64(len(buf)) {
		part := buf[:min(int64(len(buf)), size-off)]
		if n, err := f.ReadAt(part, off); n < len(part) {
			return err
		}
		if _, err := f.WriteAt(part, off); err != nil {
			return err
		}
	}
	return nil
}

// reserveAgain is reserve for a file that there is: a copy of a ring has holes, perhaps.
func reserveAgain(name string, size int64) error {
	f, err := vfs.OS.Open(name, false)
	if err != nil {
		return err
	}
	return errors.Join(reserve(f, size), f.Close())
}

// recover keeps the turns that are whole and frees all else. Nobody else uses the ring yet.
func (r *Ring) recover(got *Recovered) {
	s := r.shape
	cells := make([][]uint32, s.Turns)
	for c := range uint32(s.Cells) {
		if slot := int64(r.owner(c).Load()) - ownerTurns; slot >= 0 && slot < int64(s.Turns) {
			cells[slot] = append(cells[slot], c)
		}
	}
	kept := make([]bool, s.Cells)
	newest := r.count().Load()
	var all []*Turn
	for slot := range s.Turns {
		e := r.entry(slot)
		state := e.state().Load()
		if state == turnFree {
			continue
		}
		t, err := r.wholeTurn(slot, cells[slot])
		if state != turnWhole || err != nil {
			if state == turnWhole {
				got.Damaged = append(got.Damaged, err)
			}
			e.blank()
			e.state().Store(turnFree)
			continue
		}
		r.turns[slot].Store(t)
		for _, c := range t.Cells {
			kept[c] = true
		}
		got.Turns++
		got.Rows += len(t.Cells)
		all = append(all, t)
	}
	for i, t := range all {
		if i == 0 || before(newest, t.Generation) {
			newest = t.Generation
		}
	}
	oldest := newest + 1
	for _, t := range all {
		if before(t.Generation, oldest) {
			oldest = t.Generation
		}
	}
	r.count().Store(newest)
	r.tail().Store(oldest)

	var free []uint32
	for c := range uint32(s.Cells) {
		if !kept[c] && r.owner(c).Load() != ownerNone {
			got.Torn++
			free = append(free, c)
		}
	}
	r.free.Store(int64(s.Cells - got.Rows - len(free)))
	r.release(free)
}

// wholeTurn is the turn that a slot's entry says it has, if those cells are its rows.
func (r *Ring) wholeTurn(slot int, cells []uint32) (*Turn, error) {
	at := int64(turnsAt + turnBytes*slot)
	generation, first, rows, key, sum, sound := r.entry(slot).get()
	if !sound {
		return nil, damage.New(r.name, at+56, fmt.Sprintf("checksum of the turn in slot %d", slot), "that of its entry", "another")
	}
	cells = slices.DeleteFunc(cells, func(c uint32) bool { // another turn's, that says it is of this one
		p := int(r.position(c).Load())
		return p < first || p >= first+rows
	})
	if rows != len(cells) || generation%uint32(r.shape.Turns) != uint32(slot) || rows == 0 {
		return nil, damage.New(r.name, at+12, fmt.Sprintf("turn %d in slot %d", generation, slot), fmt.Sprintf("%d cells", rows), len(cells))
	}
	inOrder := make([]uint32, rows)
	seen := make([]bool, rows)
	for _, c := range cells {
		i := int(r.position(c).Load()) - first
		if seen[i] {
			return nil, damage.New(r.name, r.shape.cellsAt()+cellBytes*int64(c)+4, fmt.Sprintf("position of cell %d of turn %d", c, generation),
				"one that no other cell has", first+i)
		}
		inOrder[i], seen[i] = c, true
	}
	if got := r.sum(inOrder); got != sum {
		return nil, damage.New(r.name, at+48, fmt.Sprintf("checksum of the %d rows of turn %d", rows, generation), fmt.Sprintf("%016x", sum), fmt.Sprintf("%016x", got))
	}
	return &Turn{Generation: generation, First: first, Key: key, Cells: inOrder, slot: slot}, nil
}
