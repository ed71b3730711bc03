package folder

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Names in a store's directory.
const (
	FormatName   = "FORMAT"
	LockName     = "LOCK"
	IndexName    = "index.db"
	BloomName    = "bloom"
	UnsyncedName = "unsynced"
	LogDir       = "wal"
	SegmentsDir  = "segments"
	SessionsDir  = "sessions" // made with the first session
	formatMagic  = "DORMOUSE"
	formatBytes  = 88
	Version      = 3
)

// Format is the file FORMAT: what a program must know before it touches anything else.
type Format struct {
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
//
// Encode makes the file.
func (f Format) Encode() []byte {
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

// ReadOnlyAt is where FORMAT has the features that keep a release which does not know them from writing.
const ReadOnlyAt = 24

// Decode reads a FORMAT file. A damaged one is a *damage.Error, one of another release a vfs.ErrVersion.
func Decode(file string, b []byte) (f Format, err error) {
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
	f.ReadOnly = binary.LittleEndian.Uint64(b[ReadOnlyAt:])
	f.Incompatible = binary.LittleEndian.Uint64(b[32:])
	copy(f.UUID[:], b[40:])
	copy(f.Seed[:], b[56:])
	switch {
	case f.Version != Version:
		return f, fmt.Errorf("%s: %w: version %d, this release knows %d: %s", file, vfs.ErrVersion, f.Version, Version, AnotherRelease)
	case f.HashID != kv.HashID:
		return f, fmt.Errorf("%s: %w: its prompts are named by hash %d, this release knows %d: %s", file, vfs.ErrVersion, f.HashID, kv.HashID, AnotherRelease)
	case binary.LittleEndian.Uint64(b[72:]) != 0:
		return f, fmt.Errorf("%s: %w: its reserved bytes are %x", file, vfs.ErrVersion, b[72:80])
	case f.Incompatible != 0:
		return f, fmt.Errorf("%s: %w: features %#x are unknown to this release: %s", file, vfs.ErrVersion, f.Incompatible, AnotherRelease)
	}
	return f, nil
}

// AnotherRelease is what to do about a store that this release cannot read.
const AnotherRelease = "use the release that wrote it, or another directory: what was stored is computed anew there"

// OfAnotherRelease is the vfs.ErrVersion of a store in which err was met, which says that a file of the log or a segment has another version.
func OfAnotherRelease(err error) error {
	return fmt.Errorf("%w: %w: %s", vfs.ErrVersion, err, AnotherRelease)
}

// New is the FORMAT of a new store, with an identity and a hash seed of its own.
func New() Format {
	f := Format{Version: Version, HashID: kv.HashID}
	rand.Read(f.UUID[:])
	rand.Read(f.Seed[:])
	return f
}

// IsFormat reports whether a file that begins with head may be a FORMAT: whole, or what damage or a power cut left of one.
func IsFormat(head []byte) bool {
	differ := 0
	for i := range min(len(head), len(formatMagic)) {
		if head[i] != formatMagic[i] {
			differ++
		}
	}
	return len(head) <= formatBytes && (vfs.Begins(head, formatMagic) || len(head) == formatBytes && differ <= 1)
}

// Read returns the FORMAT of the store in dir. One that is missing or damaged is taken from a segment's header,
// which repeats it; a directory without FORMAT and segments gives fs.ErrNotExist.
func Read(fsys vfs.FS, dir string) (f Format, restored bool, err error) {
	f, err = ReadFile(fsys, dir)
	if err == nil || errors.Is(err, vfs.ErrVersion) {
		return f, false, err
	}
	uuid, seed, ok, serr := segments.Identify(fsys, filepath.Join(dir, SegmentsDir))
	switch {
	case errors.Is(serr, segments.ErrVersion):
		return f, false, OfAnotherRelease(serr)
	case serr != nil:
		return f, false, errors.Join(err, serr)
	case ok:
		return Format{Version: Version, HashID: kv.HashID, UUID: uuid, Seed: seed}, true, nil
	case errors.Is(err, fs.ErrNotExist):
		return f, false, fs.ErrNotExist
	}
	return f, false, err
}

// StillThere is Read for a store that has been open: where there is none any more the medium was pulled out, say, or the folder moved, and none is to
// be made in its place.
func StillThere(fsys vfs.FS, dir string) (Format, error) {
	f, _, err := Read(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s: the store that was open is not there: %w", dir, err)
	}
	return f, err
}

// ReadFile reads the file FORMAT itself.
func ReadFile(fsys vfs.FS, dir string) (Format, error) {
	name := filepath.Join(dir, FormatName)
	b, err := vfs.ReadAll(fsys, name, 1<<16)
	var large *vfs.TooLargeError
	if errors.As(err, &large) {
		return Format{}, damage.New(name, 0, "FORMAT length", formatBytes, large.Size)
	}
	if err != nil {
		return Format{}, err
	}
	return Decode(name, b)
}

// Unsynced reports whether a store says that an fsync had failed, so that what it wrote in this boot need not be on the disk; if nobody knows,
// it does.
func Unsynced(fsys vfs.FS, dir string) bool {
	_, err := fsys.Stat(filepath.Join(dir, UnsyncedName))
	return !errors.Is(err, fs.ErrNotExist)
}
