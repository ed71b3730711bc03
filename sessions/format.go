package sessions

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// This file alone knows the bytes. docs/format/session.md says the same in words. All integers are little-endian.
//
//	file  = head | frame | frame | ...
//	frame = frame head | body | 0 to 7 zeros | checksum       at a multiple of 8 bytes

const (
	magic      = "DormSes\n"
	version    = 1
	headBytes  = 96
	frameHead  = 24
	frameTail  = 8
	minFrame   = frameHead + frameTail
	tmpSuffix  = ".tmp"
	nameLength = 32 // hex of a scope
)

// kindDurable is the kind of the frames that this package writes for itself: they say that what is before them is durable.
const kindDurable = 0

// MaxBody bounds the body of a frame, in bytes.
const MaxBody = 64 << 20

// Head is what a file says of itself.
type Head struct {
	UUID   [16]byte // of the store
	Scope  [16]byte // whose file it is; its name says the same
	ID     [16]byte // random: another one each time that a file is written anew
	Number uint64   // the store's sequence number when the session was made
	made   uint64   // length of the file when it got its name: all of that was durable
}

// The head:
//
//	 0        8         12         16     32      48        64       72            80         88         96
//	+--------+---------+----------+------+-------+---------+--------+-------------+----------+----------+
//	| magic  | version | features | UUID | scope | file id | number | made length | reserved | checksum |
//	| 8      | u32 = 1 | u32 = 0  | 16   | 16    | 16      | u64    | u64         | 8 zeros  | u64      |
//	+--------+---------+----------+------+-------+---------+--------+-------------+----------+----------+
//
// checksum = xxhash64 of bytes 0 to 87, seed 0. Magic, version and the place and rule of the checksum are the same in every version.
func appendHead(dst []byte, h Head) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, version)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = append(dst, h.UUID[:]...)
	dst = append(dst, h.Scope[:]...)
	dst = append(dst, h.ID[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, h.Number)
	dst = binary.LittleEndian.AppendUint64(dst, h.made)
	dst = binary.LittleEndian.AppendUint64(dst, 0)
	return binary.LittleEndian.AppendUint64(dst, xxhash.Sum64(dst[start:]))
}

// decodeHead reads the head of the file of that name, which is said to be that scope's in the store with that UUID. The error is a
// *damage.Error, or vfs.ErrVersion, or vfs.ErrForeign.
func decodeHead(b []byte, name string, uuid, scope [16]byte) (Head, error) {
	if len(b) < headBytes {
		return Head{}, damage.New(name, 0, "session file head", fmt.Sprintf("%d bytes", headBytes), fmt.Sprintf("%d bytes", len(b)))
	}
	if string(b[:8]) != magic {
		return Head{}, damage.New(name, 0, "session file magic", fmt.Sprintf("%q", magic), fmt.Sprintf("%q", b[:8]))
	}
	if sum, want := xxhash.Sum64(b[:88]), binary.LittleEndian.Uint64(b[88:]); sum != want {
		return Head{}, damage.New(name, 0, "session file head", fmt.Sprintf("checksum %016x", want), fmt.Sprintf("%016x", sum))
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != version {
		return Head{}, fmt.Errorf("%s: offset 8: %w: version %d of session files, expected %d", name, vfs.ErrVersion, v, version)
	}
	if f := binary.LittleEndian.Uint32(b[12:]); f != 0 {
		return Head{}, fmt.Errorf("%s: offset 12: %w: features %#x of session files, expected 0", name, vfs.ErrVersion, f)
	}
	if err := damage.Reserved(name, 80, b[80:88], vfs.ErrVersion); err != nil {
		return Head{}, err
	}
	h := Head{
		UUID: [16]byte(b[16:32]), Scope: [16]byte(b[32:48]), ID: [16]byte(b[48:64]),
		Number: binary.LittleEndian.Uint64(b[64:]), made: binary.LittleEndian.Uint64(b[72:]),
	}
	if h.UUID != uuid {
		return Head{}, fmt.Errorf("%s: %w: UUID %x, this store has %x", name, vfs.ErrForeign, h.UUID, uuid)
	}
	if h.Scope != scope {
		return Head{}, damage.New(name, 32, "session file scope", fmt.Sprintf("%x", scope), fmt.Sprintf("%x", h.Scope))
	}
	if h.made < headBytes {
		return Head{}, damage.New(name, 72, "made length", fmt.Sprintf("at least %d", headBytes), h.made)
	}
	return h, nil
}

// isOurs reports whether the head of a file is one that a store with that UUID may have left: a whole one, or the beginning of one.
func isOurs(head []byte, uuid [16]byte) bool {
	if !vfs.Begins(head, magic) {
		return false
	}
	if len(head) < headBytes || xxhash.Sum64(head[:88]) != binary.LittleEndian.Uint64(head[88:]) {
		return true // what is damaged proves nothing
	}
	return [16]byte(head[16:32]) == uuid
}

// Frame is one record of a file. Its kind is 1 to 255.
type Frame struct {
	Kind uint8
	Body []byte
}

// frameAt is the fixed part of a frame.
type frameAt struct {
	length  uint32 // of the body
	kind    uint8
	offset  uint64
	durable uint64
}

// The frame:
//
//	 0        4      5          8        16        24     24+length    8 | end
//	+--------+------+----------+--------+---------+------+-----------+----------+
//	| length | kind | reserved | offset | durable | body | padding   | checksum |
//	| u32    | u8   | 3 zeros  | u64    | u64     |      | 0-7 zeros | u64      |
//	+--------+------+----------+--------+---------+------+-----------+----------+
//
// length is that of the body. offset is the frame's own place in the file. durable = the length up to which the writer knew the file
// durable when it wrote the frame. checksum = xxhash64 of all before it, seeded by frameSeed: a frame of another file, or at another
// place, is none.
func appendFrame(dst []byte, seed uint64, at frameAt, body []byte) []byte {
	start := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
	dst = append(dst, at.kind, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, at.offset)
	dst = binary.LittleEndian.AppendUint64(dst, at.durable)
	dst = append(dst, body...)
	var pad [8]byte
	dst = append(dst, pad[:-len(body)&7]...)
	return binary.LittleEndian.AppendUint64(dst, checksum(seed, dst[start:]))
}

// frameBytes is the length of a whole frame with a body of n bytes.
func frameBytes(n int64) int64 { return frameHead + (n+7)&^7 + frameTail }

// decodeFrameHead reads the fixed part from b, which holds at least frameHead bytes.
func decodeFrameHead(b []byte) frameAt {
	return frameAt{
		length: binary.LittleEndian.Uint32(b), kind: b[4],
		offset: binary.LittleEndian.Uint64(b[8:]), durable: binary.LittleEndian.Uint64(b[16:]),
	}
}

// checkFrame compares the checksum of a whole frame.
func checkFrame(seed uint64, b []byte) (want, found uint64) {
	n := len(b) - frameTail
	return binary.LittleEndian.Uint64(b[n:]), checksum(seed, b[:n])
}

func checksum(seed uint64, b []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	d.Write(b)
	return d.Sum64()
}

// frameSeed ties frames to their file.
func frameSeed(id [16]byte) uint64 { return xxhash.Sum64(id[:]) }

// Name is that of a scope's file.
func Name(scope [16]byte) string { return hex.EncodeToString(scope[:]) }

// Named reports whose file has that name; ok is false for a name that this package does not give. A tmp one was to become that file.
func Named(name string) (scope [16]byte, tmp, ok bool) {
	base, tmp := strings.CutSuffix(name, tmpSuffix)
	if len(base) != nameLength || strings.ToLower(base) != base {
		return scope, tmp, false
	}
	b, err := hex.DecodeString(base)
	if err != nil {
		return scope, tmp, false
	}
	return [16]byte(b), tmp, true
}
