package crashtest

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

const pageBytes = 4096

// Span is a part of a file.
type Span struct {
	File     string
	From, To int64
}

// Has reports whether a byte of a file is in it.
func (s Span) Has(file string, off int64) bool { return s.File == file && s.From <= off && off < s.To }

// Files are the contents of all files of a store, by the names that its disk has for them.
func Files(d *crashfs.Disk) map[string][]byte {
	return FilesIn(d, "", "wal/", "segments/", "sessions/")
}

// FilesIn is Files of some folders.
func FilesIn(d *crashfs.Disk, folders ...string) map[string][]byte {
	out := map[string][]byte{}
	for _, dir := range folders {
		names, _ := d.List(filepath.Join(d.Dir(), dir))
		for _, name := range names {
			if b, err := vfs.ReadAll(d, filepath.Join(d.Dir(), dir, name), 1<<30); err == nil {
				out[dir+name] = b
			}
		}
	}
	return out
}

// BytesOf are the places in files that show tokens or rows of a prompt.
func BytesOf(x *Chat, files map[string][]byte) (out []Span) {
	var first [1 << 16]bool // by a hash of eight bytes: hardly any others have it
	hash := func(b []byte) uint64 { return binary.LittleEndian.Uint64(b) * 0x9e3779b97f4a7c15 >> 48 }
	for b := range x.Find {
		first[hash(b[:])] = true
	}
	for name, b := range files {
		for i := 0; i+16 <= len(b); i++ {
			if first[hash(b[i:])] {
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
