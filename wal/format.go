package wal

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/internal/damage"
)

// This file alone knows the bytes. docs/format/wal.md says the same in words. All integers are little-endian.
//
//	file  = header | snapshot frame | frame | frame | ... | zeros, reserved
//	frame = head | payload | 0 to 7 zeros | checksum       at a multiple of 8 bytes

const (
	magic       = "DormWAL\n"
	version     = 3
	headerBytes = 64
	frameHead   = 48
	frameTail   = 8
	minFrame    = frameHead + frameTail
	tailBytes   = 8 // at least so many zeros follow the last frame: a file that was cut at a frame's end has none
)

// KindSnapshot is the kind of the first frame of every file: the caller's small state at the end of the file before. One
// further on says that a recovery on a full disk went on there.
const KindSnapshot = 1

// fileHeader is the start of a log file.
type fileHeader struct {
	uuid  [16]byte
	id    uint64
	first uint64 // LSN of the file's first frame behind the snapshot
}

// The file header:
//
//	 0        8         12         16      32        40          48         56         64
//	+--------+---------+----------+-------+---------+-----------+----------+----------+
//	| magic  | version | features | UUID  | file id | first LSN | reserved | checksum |
//	| 8      | u32     | u32      | 16    | u64     | u64       | 8 zeros  | u64      |
//	+--------+---------+----------+-------+---------+-----------+----------+----------+
//
// checksum = xxhash64 of bytes 0 to 55, seed 0. Magic, version and the place and rule of the checksum are the same in
// every version, so that a damaged header is never taken for one of a later version.
func appendHeader(dst []byte, h fileHeader) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, version)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = append(dst, h.uuid[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, h.id)
	dst = binary.LittleEndian.AppendUint64(dst, h.first)
	dst = binary.LittleEndian.AppendUint64(dst, 0)
	return binary.LittleEndian.AppendUint64(dst, xxhash.Sum64(dst[start:]))
}

// decodeHeader reads the header of the file with this name, which says that its id is id. It returns a *damage.Error if
// the bytes are not what was written (it wraps errMagic if not even the magic is there), and else ErrVersion or
// ErrForeign if they are not for this reader.
func decodeHeader(b []byte, name string, uuid [16]byte, id uint64) (fileHeader, error) {
	if len(b) < headerBytes {
		return fileHeader{}, damage.New(name, 0, "log file header", fmt.Sprintf("%d bytes", headerBytes), fmt.Sprintf("%d bytes", len(b)))
	}
	if string(b[:8]) != magic {
		d := damage.New(name, 0, "log file magic", fmt.Sprintf("%q", magic), fmt.Sprintf("%q", b[:8]))
		d.Err = errMagic
		return fileHeader{}, d
	}
	if sum, want := xxhash.Sum64(b[:56]), binary.LittleEndian.Uint64(b[56:]); sum != want {
		return fileHeader{}, damage.New(name, 0, "log file header", fmt.Sprintf("checksum %016x", want), fmt.Sprintf("%016x", sum))
	}
	v, features := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
	if v != version {
		return fileHeader{}, fmt.Errorf("%s: offset 8: %w: found %d, this program reads %d", name, ErrVersion, v, version)
	}
	if features != 0 {
		return fileHeader{}, fmt.Errorf("%s: offset 12: %w: unknown feature bits: expected 0, found %#x", name, ErrVersion, features)
	}
	if err := damage.Reserved(name, 48, b[48:56], ErrVersion); err != nil {
		return fileHeader{}, err
	}
	h := fileHeader{
		uuid:  [16]byte(b[16:32]),
		id:    binary.LittleEndian.Uint64(b[32:]),
		first: binary.LittleEndian.Uint64(b[40:]),
	}
	if h.uuid != uuid {
		return fileHeader{}, fmt.Errorf("%s: %w: UUID %x, this store has %x", name, ErrForeign, h.uuid, uuid)
	}
	if h.id != id {
		return fileHeader{}, damage.New(name, 32, "log file id", id, h.id)
	}
	if h.first == 0 {
		return fileHeader{}, damage.New(name, 40, "first LSN", "at least 1", 0)
	}
	return h, nil
}

// frameHeader is the fixed part of a frame.
type frameHeader struct {
	length  uint32 // of head and payload
	kind    uint8
	file    uint64
	offset  uint64
	lsn     uint64
	durable uint64
	boot    uint64 // Options.Boot of who wrote it
}

// The frame:
//
//	 0        4      5          8         16       24    32        40     48        length     8 | end
//	+--------+------+----------+---------+--------+-----+---------+------+---------+----------+----------+
//	| length | kind | reserved | file id | offset | LSN | durable | boot | payload | padding  | checksum |
//	| u32    | u8   | 3 zeros  | u64     | u64    | u64 | u64     | u64  |         | 0-7 zeros| u64      |
//	+--------+------+----------+---------+--------+-----+---------+------+---------+----------+----------+
//
// length = 48 + payload bytes. file id and offset are the frame's own place, so that a copy of a frame within a payload, or
// left over in a reused block, is no frame. durable = the LSN up to which the writer knew the log durable when it wrote
// the frame. boot = which boot of the system it was written in, 0 if nothing told. checksum = xxhash64 of all before it, seeded by frameSeed. Kind 0 and file id 0 are never used, so zeros
// never parse.
func appendFrame(dst []byte, seed uint64, h frameHeader, payload []byte) []byte {
	start := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(frameHead+len(payload)))
	dst = append(dst, h.kind, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, h.file)
	dst = binary.LittleEndian.AppendUint64(dst, h.offset)
	dst = binary.LittleEndian.AppendUint64(dst, h.lsn)
	dst = binary.LittleEndian.AppendUint64(dst, h.durable)
	dst = binary.LittleEndian.AppendUint64(dst, h.boot)
	dst = append(dst, payload...)
	var zeros [8]byte
	dst = append(dst, zeros[:-len(payload)&7]...)
	return binary.LittleEndian.AppendUint64(dst, checksum(seed, dst[start:]))
}

// decodeFrameHeader reads the fixed part from b, which holds at least minFrame bytes.
func decodeFrameHeader(b []byte) frameHeader {
	return frameHeader{
		length:  binary.LittleEndian.Uint32(b),
		kind:    b[4],
		file:    binary.LittleEndian.Uint64(b[8:]),
		offset:  binary.LittleEndian.Uint64(b[16:]),
		lsn:     binary.LittleEndian.Uint64(b[24:]),
		durable: binary.LittleEndian.Uint64(b[32:]),
		boot:    binary.LittleEndian.Uint64(b[40:]),
	}
}

// couldBeFrame says quickly whether b, which holds at least minFrame bytes, names this place as a frame does.
func couldBeFrame(b []byte, file, offset uint64) bool {
	return binary.LittleEndian.Uint64(b[16:]) == offset && binary.LittleEndian.Uint64(b[8:]) == file
}

// frameBytes is the length of a whole frame whose length field is length.
func frameBytes(length uint32) int64 { return roundUp(int64(length), 8) + frameTail }

// reservedInFrame returns ErrVersion if the bytes that a whole frame at off leaves zero are not.
func reservedInFrame(name string, off int64, b []byte, length uint32) error {
	if err := damage.Reserved(name, off+5, b[5:8], ErrVersion); err != nil {
		return err
	}
	return damage.Reserved(name, off+int64(length), b[length:len(b)-frameTail], ErrVersion)
}

// checkFrame compares the checksum of a whole frame.
func checkFrame(seed uint64, b []byte) (want, found uint64, ok bool) {
	n := len(b) - frameTail
	want, found = binary.LittleEndian.Uint64(b[n:]), checksum(seed, b[:n])
	return want, found, want == found
}

func checksum(seed uint64, b []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	d.Write(b)
	return d.Sum64()
}

// frameSeed ties a store's frames to its UUID even where the file header is lost.
func frameSeed(uuid [16]byte) uint64 { return xxhash.Sum64(uuid[:]) }
