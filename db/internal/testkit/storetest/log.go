package storetest

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
)

// Log is the newest file of a store's log.
func Log(t testing.TB, s *db.Store) admin.LogFile {
	t.Helper()
	files, err := db.Collect(admin.Log(t.Context(), s))
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	return files[len(files)-1]
}

// LogBytes is what all files of a store's log occupy.
func LogBytes(t testing.TB, s *db.Store) (n int64) {
	t.Helper()
	for f, err := range admin.Log(t.Context(), s) {
		if err != nil {
			t.Fatal(err)
		}
		n += f.Bytes
	}
	return n
}

// Of a frame of the log (docs/format/wal.md).
const (
	logHeader = 64
	frameHead = 48
	frameSum  = 8
)

// frameEnd is where a frame ends without its checksum, or 0 if none begins there.
func frameEnd(b []byte) int {
	n := int(binary.LittleEndian.Uint32(b))
	if n < frameHead {
		return 0
	}
	return (n + 7) / 8 * 8
}

// LogHead is the payload of the frame that the newest log file in a store's folder begins with.
func LogHead(t testing.TB, dir string) []byte {
	t.Helper()
	_, b := NewestLog(t, dir)
	return b[logHeader+frameHead:][:binary.LittleEndian.Uint32(b[logHeader:])-frameHead]
}

// AppendToLog writes a frame behind the last one of the log of a store whose process was killed.
func AppendToLog(t testing.TB, dir string, kind uint8, payload []byte) {
	t.Helper()
	path, b := NewestLog(t, dir)
	last, at := logHeader, logHeader
	for end := frameEnd(b[at:]); end > 0; end = frameEnd(b[at:]) {
		last, at = at, at+end+frameSum
	}
	f := slices.Clone(b[last:][:frameHead])
	le := binary.LittleEndian
	le.PutUint32(f, uint32(frameHead+len(payload)))
	f[4] = kind
	le.PutUint64(f[16:], uint64(at))
	le.PutUint64(f[24:], le.Uint64(f[24:])+1)
	f = append(f, payload...)
	f = append(f, make([]byte, (8-len(f)%8)%8)...)
	format, err := os.ReadFile(filepath.Join(dir, FormatFile))
	if err != nil {
		t.Fatal(err)
	}
	const uuidAt, uuidBytes = 40, 16
	var sum xxhash.Digest
	sum.ResetWithSeed(xxhash.Sum64(format[uuidAt : uuidAt+uuidBytes]))
	sum.Write(f)
	Write(t, path, int64(at), le.AppendUint64(f, sum.Sum64()))
}

// NewestLog is the path of the newest file of the log in a store's folder, and its bytes.
func NewestLog(t testing.TB, dir string) (path string, b []byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, LogDir, "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	path = slices.Max(files)
	if b, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return path, b
}
