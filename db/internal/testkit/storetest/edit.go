package storetest

import (
	"encoding/binary"
	"hash/crc32"
	"hash/fnv"
	"path"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Edits of a store's files, and forged checksums. The offsets are those of docs/format.

// What an edit does.
const (
	EditSet      = iota // a byte becomes the value
	EditXor             // some of its bits change
	EditWord            // eight bytes become the value, or all ones
	EditZeroPage        // its page of 4 KiB becomes zeros
	EditSwap            // its page and the one behind change places
	EditCut             // the file ends there
	EditRemove          // the file is gone
	EditKinds
)

// Edit does the edits of b, six bytes each: file, offset in three bytes, what, value.
func (m Image) Edit(names []string, b []byte) {
	for ; len(b) >= 6; b = b[6:] {
		name := names[int(b[0])%len(names)]
		file := m[name]
		if len(file) == 0 {
			continue
		}
		off := (int(b[1]) | int(b[2])<<8 | int(b[3])<<16) % len(file)
		page := file[off/4096*4096:]
		switch b[4] % EditKinds {
		case EditSet:
			file[off] = b[5]
		case EditXor:
			file[off] ^= b[5]
		case EditWord:
			for i := off; i < min(off+8, len(file)); i++ {
				file[i] = b[5]
			}
		case EditZeroPage:
			clear(page[:min(4096, len(page))])
		case EditSwap:
			for i := 0; i < 4096 && i+4096 < len(page); i++ {
				page[i], page[i+4096] = page[i+4096], page[i]
			}
		case EditCut:
			m[name] = file[:off:off]
		case EditRemove:
			delete(m, name)
		}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Seal makes every checksum fit that can be found.
func (m Image) Seal() {
	le := binary.LittleEndian
	if b := m[FormatFile]; len(b) == FormatBytes {
		le.PutUint64(b[80:], xxhash.Sum64(b[:80]))
	}
	if b := m[BloomFile]; len(b) >= 72 {
		le.PutUint64(b[len(b)-8:], xxhash.Sum64(b[:len(b)-8]))
	}
	if b := m[IndexFile]; len(b) > 0 {
		sealIndex(b)
	}
	for name, b := range m {
		switch {
		case path.Dir(name) == LogDir && strings.HasSuffix(name, ".wal"):
			sealLog(b)
		case path.Dir(name) == SegmentsDir:
			sealSegment(b)
		}
	}
}

func sealLog(b []byte) {
	le := binary.LittleEndian
	if len(b) < 64 {
		return
	}
	le.PutUint64(b[56:], xxhash.Sum64(b[:56]))
	seed := xxhash.Sum64(b[16:32])
	for off := 64; off+48 <= len(b); {
		end := off + (int(le.Uint32(b[off:])&0xffffff)+7)/8*8
		if end < off+40 || end+8 > len(b) {
			return
		}
		var sum xxhash.Digest
		sum.ResetWithSeed(seed)
		sum.Write(b[off:end])
		le.PutUint64(b[end:], sum.Sum64())
		off = end + 8
	}
}

// around is the CRC32C of b without the four bytes at off.
func around(b []byte, off int) uint32 {
	return crc32.Update(crc32.Checksum(b[:off], castagnoli), castagnoli, b[off+4:])
}

func sealSegment(b []byte) {
	le := binary.LittleEndian
	if len(b) < 128 {
		return
	}
	if n := 128 + int(le.Uint32(b[84:])&0xffff); n <= len(b) {
		le.PutUint32(b[124:], around(b[:n], 124))
	}
	for off := 4096; off+256 <= len(b); off += 4096 {
		r := b[off:]
		if string(r[:8]) != "DORM.REC" {
			continue
		}
		table := 256 + int(le.Uint32(r[140:])&0xffff+le.Uint32(r[144:])&0xffff+le.Uint32(r[148:])&0xffff)
		table = (table + 63) / 64 * 64
		head := table + int(le.Uint32(r[152:])&0xffff)
		if head > len(r) {
			continue
		}
		for e := table; e+64 <= head; e += 64 {
			from, n := le.Uint64(r[e+8:]), le.Uint64(r[e+16:])
			if from < uint64(len(r)) && n <= uint64(len(r))-from {
				le.PutUint32(r[e+24:], crc32.Checksum(r[from:from+n], castagnoli))
			}
		}
		le.PutUint32(r[252:], around(r[:head], 252))
	}
}

func sealIndex(b []byte) {
	le := binary.LittleEndian
	for off := 0; off+4096 <= len(b); off += 4096 {
		p := b[off : off+4096]
		flags, count := le.Uint16(p[8:]), int(le.Uint16(p[10:]))
		if flags == 4 { // a meta page
			h := fnv.New64a()
			h.Write(p[16:72])
			le.PutUint64(p[72:], h.Sum64())
		}
		if flags != 2 {
			continue
		}
		for i := 0; i < count && 16+16*i+16 <= len(p); i++ {
			e := 16 + 16*i
			key := uint64(e) + uint64(le.Uint32(p[e+4:]))
			val := key + uint64(le.Uint32(p[e+8:]))
			end := val + uint64(le.Uint32(p[e+12:]))
			if le.Uint32(p[e:]) != 0 || val < key || end < val+8 || end > uint64(len(p)) {
				continue
			}
			row := append(append([]byte(nil), p[key:val]...), p[val+8:end]...)
			le.PutUint64(p[val:], xxhash.Sum64(row))
		}
	}
}
