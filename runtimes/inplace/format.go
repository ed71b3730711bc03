package inplace

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

// The file, drawn in docs/format/ring.md. Only this Go file knows its bytes. Numbers have the machine's byte order, since atomics work on
// them where they lie: the byte-order mark refuses a file of the other one.
//
//	0      header      8 magic · 4 version · 4 byte-order mark · 4 cells · 4 turns · 4 layers · 4 row bytes · 16 model · 8 checksum of these
//	64     head        4, a cache line of its own, like tail and turn count
//	128    tail        4
//	192    turn count  4
//	4096   turns       64 each: 4 state · 4 generation · 4 first position · 4 rows · 32 key · 8 checksum of the rows · 8 checksum of these
//	…      cells       8 each: 4 owner · 4 position
//	…      planes      layer 0 K, layer 0 V, layer 1 K, …: cells x row bytes each, from a multiple of 64
const (
	ringMagic   = "DORMRING"
	ringVersion = 1
	byteOrder   = 0x01020304

	headAt, tailAt, countAt = 64, 128, 192
	turnsAt                 = 4096
	turnBytes               = 64
	cellBytes               = 8
	planeAlign              = 64
	headerSumAt             = 48

	maxCells  = 1 << 24
	maxTurns  = 1 << 20
	maxLayers = 1 << 12
)

// States of a turn's entry.
const (
	turnFree = iota
	turnBusy // being written, or taken apart
	turnWhole
)

// Owners of a cell. From ownerTurns on: the turn in slot owner - ownerTurns.
const (
	ownerNone = iota
	ownerOpen // claimed, of no turn yet
	ownerTurns
)

// Shape is what a ring has room for, and for which model.
type Shape struct {
	Cells    int // rows
	Turns    int // whole turns at a time; 0: one for eight cells, at least 64
	Layers   int
	RowBytes int // of one layer's K, and of its V
	Model    kv.Fingerprint
}

func (s Shape) filled() Shape {
	if s.Turns == 0 {
		s.Turns = max(64, s.Cells/8)
	}
	return s
}

// Validate says which field is wrong.
func (s Shape) Validate() error {
	for _, f := range []struct {
		name          string
		n, low, limit int
	}{
		{"Cells", s.Cells, 1, maxCells}, {"Turns", s.Turns, 0, maxTurns}, {"Layers", s.Layers, 1, maxLayers}, {"RowBytes", s.RowBytes, 1, kv.MaxWidth * 4},
	} {
		if f.n < f.low || f.n > f.limit {
			return fmt.Errorf("inplace: %s is %d, want %d to %d", f.name, f.n, f.low, f.limit)
		}
	}
	if s := s.filled(); s.bytes() > math.MaxInt/2 || s.bytes() < 0 {
		return fmt.Errorf("inplace: a ring of %d cells, %d layers and rows of %d bytes is too large", s.Cells, s.Layers, s.RowBytes)
	}
	return nil
}

func (s Shape) cellsAt() int64    { return turnsAt + turnBytes*int64(s.Turns) }
func (s Shape) planesAt() int64   { return align(s.cellsAt() + cellBytes*int64(s.Cells)) }
func (s Shape) planeBytes() int64 { return align(int64(s.Cells) * int64(s.RowBytes)) }
func (s Shape) bytes() int64      { return s.planesAt() + 2*int64(s.Layers)*s.planeBytes() }

func align(n int64) int64 { return (n + planeAlign - 1) / planeAlign * planeAlign }

// plane is the rows of a layer's K (0) or V (1).
func (s Shape) plane(mem []byte, layer, kind int) []byte {
	at := s.planesAt() + int64(2*layer+kind)*s.planeBytes()
	n := int64(s.Cells) * int64(s.RowBytes)
	return mem[at : at+n : at+n]
}

// encodeHeader writes the header that does not change.
func (s Shape) encodeHeader(mem []byte) {
	copy(mem, ringMagic)
	for i, v := range []int{ringVersion, byteOrder, s.Cells, s.Turns, s.Layers, s.RowBytes} {
		binary.NativeEndian.PutUint32(mem[8+4*i:], uint32(v))
	}
	copy(mem[32:48], s.Model[:])
	binary.NativeEndian.PutUint64(mem[headerSumAt:], xxhash.Sum64(mem[:headerSumAt]))
}

// decodeHeader reads it from a file of that many bytes.
func decodeHeader(name string, mem []byte, size int64) (Shape, error) {
	if len(mem) < turnsAt {
		return Shape{}, damage.New(name, 0, "ring header", fmt.Sprintf("%d bytes", turnsAt), fmt.Sprintf("a file of %d", size))
	}
	if string(mem[:8]) != ringMagic {
		return Shape{}, &NotARingError{File: name, Found: mem[:8]}
	}
	number := func(at int) int { return int(binary.NativeEndian.Uint32(mem[at:])) }
	if v := number(12); v != byteOrder {
		return Shape{}, damage.New(name, 12, "byte order of the ring", fmt.Sprintf("%#x", byteOrder), fmt.Sprintf("%#x", v))
	}
	if v := number(8); v != ringVersion {
		return Shape{}, fmt.Errorf("%w: %s: version %d of a ring at offset 8, this release has %d", kv.ErrUnsupported, name, v, ringVersion)
	}
	if want, got := xxhash.Sum64(mem[:headerSumAt]), binary.NativeEndian.Uint64(mem[headerSumAt:]); want != got {
		return Shape{}, damage.New(name, headerSumAt, "checksum of the ring header", fmt.Sprintf("%016x", want), fmt.Sprintf("%016x", got))
	}
	s := Shape{Cells: number(16), Turns: number(20), Layers: number(24), RowBytes: number(28), Model: kv.Fingerprint(mem[32:48])}
	if err := s.Validate(); err != nil || s.Turns == 0 {
		return Shape{}, damage.Wrap(name, 16, "shape of the ring", err)
	}
	if s.bytes() != size {
		return Shape{}, damage.New(name, size, "ring", fmt.Sprintf("%d bytes", s.bytes()), size)
	}
	return s, nil
}

// NotARingError says that a file is something else. It is not changed.
type NotARingError struct {
	File  string
	Found []byte // what it begins with
}

func (e *NotARingError) Error() string {
	return fmt.Sprintf("%s: no ring of a KV cache: expected %q at offset 0, found %q", e.File, ringMagic, e.Found)
}

// Key is what the rows of a turn depend on, whatever that is to whoever keeps them there: a hash of the tokens up to its end, say.
type Key [32]byte

// entry is a turn's place in the table.
type entry struct {
	mem []byte
}

func entryOf(mem []byte, slot int) entry {
	at := turnsAt + turnBytes*slot
	return entry{mem[at : at+turnBytes]}
}

func (e entry) state() *atomic.Uint32      { return word(e.mem, 0) }
func (e entry) generation() *atomic.Uint32 { return word(e.mem, 4) }

// set writes all but the state.
func (e entry) set(generation uint32, first, rows int, key Key, sum uint64) {
	e.generation().Store(generation)
	binary.NativeEndian.PutUint32(e.mem[8:], uint32(first))
	binary.NativeEndian.PutUint32(e.mem[12:], uint32(rows))
	copy(e.mem[16:48], key[:])
	binary.NativeEndian.PutUint64(e.mem[48:], sum)
	binary.NativeEndian.PutUint64(e.mem[56:], xxhash.Sum64(e.mem[4:56]))
}

// blank takes away what the entry said.
func (e entry) blank() { clear(e.mem[8:]) }

// get reads all but the state; sound is whether the checksum says so.
func (e entry) get() (generation uint32, first, rows int, key Key, sum uint64, sound bool) {
	sound = binary.NativeEndian.Uint64(e.mem[56:]) == xxhash.Sum64(e.mem[4:56])
	return e.generation().Load(), int(binary.NativeEndian.Uint32(e.mem[8:])), int(binary.NativeEndian.Uint32(e.mem[12:])),
		Key(e.mem[16:48]), binary.NativeEndian.Uint64(e.mem[48:]), sound
}

// owner is who has a cell.
func (s Shape) owner(mem []byte, cell uint32) *atomic.Uint32 {
	return word(mem, s.cellsAt()+cellBytes*int64(cell))
}

// position is that of the row in a cell of a turn.
func (s Shape) position(mem []byte, cell uint32) *atomic.Uint32 {
	return word(mem, s.cellsAt()+cellBytes*int64(cell)+4)
}

// word is a number of 32 bits where it lies. Offsets of all of them are multiples of 4, and memory begins at a page or a multiple of 8.
func word(mem []byte, at int64) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&mem[at : at+4][0]))
}
