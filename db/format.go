package db

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Names in a store's directory.
const (
	formatName   = "FORMAT"
	lockName     = "LOCK"
	indexName    = "index.db"
	bloomName    = "bloom"
	unsyncedName = "unsynced"
	walDir       = "wal"
	segmentsDir  = "segments"
	sessionsDir  = "sessions" // reserved for dual-stream sessions
	formatMagic  = "DORMOUSE"
	formatBytes  = 88
	storeVersion = 2
)

// storeFormat is the file FORMAT: what a program must know before it touches anything else.
type storeFormat struct {
	Version      uint32
	HashID       uint32
	Compatible   uint64 // unknown bits here are ignored
	ReadOnly     uint64 // unknown bits here allow reading
	Incompatible uint64 // unknown bits here refuse the store
	UUID         kv.UUID
	Seed         kv.Seed
}

//	 0        8         12       16           24         32             40     56     72         80       88
//	+--------+---------+--------+------------+----------+--------------+------+------+----------+--------+
//	| magic  | version | hashID | compatible | readOnly | incompatible | UUID | seed | reserved | xxhash |
//	+--------+---------+--------+------------+----------+--------------+------+------+----------+--------+
//
// The checksum covers everything before it.
func (f storeFormat) encode() []byte {
	b := make([]byte, 0, formatBytes)
	b = append(b, formatMagic...)
	b = binary.LittleEndian.AppendUint32(b, f.Version)
	b = binary.LittleEndian.AppendUint32(b, f.HashID)
	b = binary.LittleEndian.AppendUint64(b, f.Compatible)
	b = binary.LittleEndian.AppendUint64(b, f.ReadOnly)
	b = binary.LittleEndian.AppendUint64(b, f.Incompatible)
	b = append(b, f.UUID[:]...)
	b = append(b, f.Seed[:]...)
	b = binary.LittleEndian.AppendUint64(b, 0)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
}

// decodeFormat reads a FORMAT file. A damaged one is a *damage.Error, one from the future an ErrVersion.
func decodeFormat(file string, b []byte) (f storeFormat, err error) {
	if len(b) != formatBytes {
		return f, damage.New(file, 0, "FORMAT length", formatBytes, len(b))
	}
	if string(b[:8]) != formatMagic {
		return f, damage.New(file, 0, "FORMAT magic", fmt.Sprintf("%q", formatMagic), fmt.Sprintf("%q", b[:8]))
	}
	if want, got := xxhash.Sum64(b[:80]), binary.LittleEndian.Uint64(b[80:]); want != got {
		return f, damage.New(file, 80, "FORMAT checksum", fmt.Sprintf("%#x", want), fmt.Sprintf("%#x", got))
	}
	f.Version = binary.LittleEndian.Uint32(b[8:])
	f.HashID = binary.LittleEndian.Uint32(b[12:])
	f.Compatible = binary.LittleEndian.Uint64(b[16:])
	f.ReadOnly = binary.LittleEndian.Uint64(b[24:])
	f.Incompatible = binary.LittleEndian.Uint64(b[32:])
	copy(f.UUID[:], b[40:])
	copy(f.Seed[:], b[56:])
	switch {
	case f.Version != storeVersion:
		return f, fmt.Errorf("%s: %w: version %d, this release knows %d: %s", file, ErrVersion, f.Version, storeVersion, anotherRelease)
	case f.HashID != kv.HashID:
		return f, fmt.Errorf("%s: %w: its prompts are named by hash %d, this release knows %d: %s", file, ErrVersion, f.HashID, kv.HashID, anotherRelease)
	case binary.LittleEndian.Uint64(b[72:]) != 0:
		return f, fmt.Errorf("%s: %w: its reserved bytes are %x", file, ErrVersion, b[72:80])
	case f.Incompatible != 0:
		return f, fmt.Errorf("%s: %w: features %#x are unknown to this release: %s", file, ErrVersion, f.Incompatible, anotherRelease)
	}
	return f, nil
}

// anotherRelease is what to do about a store that this release cannot read.
const anotherRelease = "use the release that wrote it, or another directory: what was stored is computed anew there"

// ofAnotherRelease is the ErrVersion of a store in which err was met, which says that a file of the log or a segment has another version.
func ofAnotherRelease(err error) error {
	return fmt.Errorf("%w: %w: %s", ErrVersion, err, anotherRelease)
}

func newFormat() storeFormat {
	f := storeFormat{Version: storeVersion, HashID: kv.HashID}
	rand.Read(f.UUID[:])
	rand.Read(f.Seed[:])
	return f
}

// isFormat reports whether a file that begins with head may be a FORMAT: whole, or what damage or a power cut left of one.
func isFormat(head []byte) bool {
	differ := 0
	for i := range min(len(head), len(formatMagic)) {
		if head[i] != formatMagic[i] {
			differ++
		}
	}
	return len(head) <= formatBytes && (vfs.Begins(head, formatMagic) || len(head) == formatBytes && differ <= 1)
}

// readFormat returns the FORMAT of the store in dir. One that is missing or damaged is taken from a segment's header,
// which repeats it; a directory without FORMAT and segments gives fs.ErrNotExist.
func readFormat(fsys vfs.FS, dir string) (f storeFormat, restored bool, err error) {
	f, err = readFormatFile(fsys, dir)
	if err == nil || errors.Is(err, ErrVersion) {
		return f, false, err
	}
	uuid, seed, ok, serr := segments.Identify(fsys, filepath.Join(dir, segmentsDir))
	switch {
	case errors.Is(serr, segments.ErrVersion):
		return f, false, ofAnotherRelease(serr)
	case serr != nil:
		return f, false, errors.Join(err, serr)
	case ok:
		return storeFormat{Version: storeVersion, HashID: kv.HashID, UUID: uuid, Seed: seed}, true, nil
	case errors.Is(err, fs.ErrNotExist):
		return f, false, fs.ErrNotExist
	}
	return f, false, err
}

func readFormatFile(fsys vfs.FS, dir string) (storeFormat, error) {
	name := filepath.Join(dir, formatName)
	b, err := vfs.ReadAll(fsys, name, 1<<16)
	var large *vfs.TooLargeError
	if errors.As(err, &large) {
		return storeFormat{}, damage.New(name, 0, "FORMAT length", formatBytes, large.Size)
	}
	if err != nil {
		return storeFormat{}, err
	}
	return decodeFormat(name, b)
}

// LostFormat says what is wrong with the file FORMAT of the store in dir, where the store can be opened nevertheless: a
// segment's header repeats what was in it. Opening the store for writing restores the file; opening it read-only does
// not. The answer is nil if FORMAT is sound. The error is what Open would say of a directory that holds no store, or one
// that it cannot open.
func LostFormat(dir string) (why, err error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	_, restored, err := readFormat(vfs.OS, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, noStoreError(dir)
	case err != nil || !restored:
		return nil, err
	}
	_, why = readFormatFile(vfs.OS, dir)
	return why, nil
}
