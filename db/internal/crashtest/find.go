package crashtest

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
)

const pageBytes = 4096

// Span is a part of a file.
type Span struct {
	File     string
	From, To int64
}

// Has reports whether a byte of a file is in it.
func (s Span) Has(file string, off int64) bool { return s.File == file && s.From <= off && off < s.To }

// BytesOf are the places in files that show tokens or rows of a prompt.
func BytesOf(x *Chat, files map[string][]byte) (out []Span) {
	var first [1 << 16]bool
	for b := range x.Find {
		first[binary.LittleEndian.Uint16(b[:])] = true
	}
	for name, b := range files {
		for i := 0; i+16 <= len(b); i++ {
			if first[binary.LittleEndian.Uint16(b[i:])] {
				if _, ok := x.Find[[16]byte(b[i:])]; ok {
					out = append(out, Span{name, int64(i), int64(i) + 16})
				}
			}
		}
	}
	return out
}

// RecordsOf are the records that have tokens or rows of a prompt (docs/format/record.md), each once.
func RecordsOf(x *Chat, files map[string][]byte) (out []Span) {
	const totalAt = 120
	for _, at := range BytesOf(x, files) {
		if slices.ContainsFunc(out, func(s Span) bool { return s.Has(at.File, at.From) }) {
			continue
		}
		b := files[at.File]
		for from := at.From / pageBytes * pageBytes; from >= 0; from -= pageBytes {
			if bytes.HasPrefix(b[from:], []byte("DORM.REC")) {
				to := from + int64(binary.LittleEndian.Uint64(b[from+totalAt:]))
				if at.From < to {
					out = append(out, Span{at.File, from, (to + pageBytes - 1) / pageBytes * pageBytes})
				}
				break
			}
		}
	}
	return out
}

// LogFiles are the names of the log's files, the newest first.
func LogFiles(files map[string][]byte) (names []string) {
	for name := range files {
		if strings.HasPrefix(name, "wal/") && strings.HasSuffix(name, ".wal") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names
}

// FirstOf is the position of a record's first token (docs/format/record.md). Those of one put lie in any order.
func FirstOf(files map[string][]byte, s Span) uint32 {
	return binary.LittleEndian.Uint32(files[s.File][s.From+128:])
}
