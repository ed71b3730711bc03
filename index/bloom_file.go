package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// The Bloom filter's file, drawn in docs/format/bloom.md as well:
//
//	 0       8         12   16     32    40     48         56      60     64        64+8w   72+8w
//	┌───────┬─────────┬────┬──────┬─────┬──────┬──────────┬───────┬──────┬─────────┬───────┐
//	│ magic │ version │ k  │ UUID │ LSN │ keys │ capacity │ words │ hash │ w words │ sum   │
//	└───────┴─────────┴────┴──────┴─────┴──────┴──────────┴───────┴──────┴─────────┴───────┘
//
// hash names the two hash functions; the store's seed is not among their inputs. sum is xxhash64 of all before it.
const (
	bloomMagic       = "DORMBLOM"
	bloomVersion     = 1
	bloomHash        = 1 // murmur3 64 and xxhash64, multiply-shift
	bloomHeaderBytes = 64
)

func encodeBloom(b *Bloom, uuid kv.UUID, lsn uint64) []byte {
	le := binary.LittleEndian
	buf := make([]byte, 0, bloomHeaderBytes+8*len(b.words)+sumBytes)
	buf = append(buf, bloomMagic...)
	buf = le.AppendUint32(buf, bloomVersion)
	buf = le.AppendUint32(buf, uint32(b.k))
	buf = append(buf, uuid[:]...)
	buf = le.AppendUint64(buf, lsn)
	buf = le.AppendUint64(buf, uint64(b.keys.Load()))
	buf = le.AppendUint64(buf, uint64(b.n))
	buf = le.AppendUint32(buf, uint32(len(b.words)))
	buf = le.AppendUint32(buf, bloomHash)
	for i := range b.words {
		buf = le.AppendUint64(buf, atomic.LoadUint64(&b.words[i]))
	}
	return le.AppendUint64(buf, xxhash.Sum64(buf))
}

// decodeBloom reads the file's bytes.
func decodeBloom(name string, buf []byte, uuid kv.UUID) (*Bloom, uint64, error) {
	le := binary.LittleEndian
	bad := func(off int64, what string, expected, found any) (*Bloom, uint64, error) {
		return nil, 0, damage.New(name, off, what, expected, found)
	}
	if len(buf) < bloomHeaderBytes+sumBytes {
		return bad(0, "Bloom file", fmt.Sprintf("at least %d bytes", bloomHeaderBytes+sumBytes), len(buf))
	}
	if magic := string(buf[:8]); magic != bloomMagic {
		return bad(0, "magic of the Bloom file", fmt.Sprintf("%q", bloomMagic), fmt.Sprintf("%q", magic))
	}
	if v := le.Uint32(buf[8:]); v != bloomVersion {
		return nil, 0, damage.Wrap(name, 8, "Bloom file",
			fmt.Errorf("%w: version %d, this program writes %d", ErrVersion, v, bloomVersion))
	}
	words := uint64(le.Uint32(buf[56:]))
	if have := uint64(len(buf)-bloomHeaderBytes-sumBytes) / 8; words != have || len(buf)%8 != 0 || words == 0 {
		return bad(56, "number of words", fmt.Sprintf("%d, as the file's size of %d says", have, len(buf)), words)
	}
	end := len(buf) - sumBytes
	if sum := xxhash.Sum64(buf[:end]); sum != le.Uint64(buf[end:]) {
		return bad(int64(end), "checksum of the Bloom file", fmt.Sprintf("%016x", sum), fmt.Sprintf("%016x", le.Uint64(buf[end:])))
	}
	if id := kv.UUID(buf[16:]); id != uuid {
		return nil, 0, fmt.Errorf("%s: %w: it belongs to store %s, this one is %s", name, ErrForeign, id, uuid)
	}
	if id := le.Uint32(buf[60:]); id != bloomHash {
		return nil, 0, damage.Wrap(name, 60, "Bloom file", fmt.Errorf("%w: hash functions %d", ErrVersion, id))
	}
	k := le.Uint32(buf[12:])
	if k < 1 || k > maxBloomProbes {
		return bad(12, "number of probes", fmt.Sprintf("1 to %d", maxBloomProbes), k)
	}
	capacity := le.Uint64(buf[48:])
	if capacity > words*64 {
		return bad(48, "capacity", fmt.Sprintf("at most %d keys", words*64), capacity)
	}
	b := newBloom(int(words), int(k), int(capacity))
	set := 0
	for i := range b.words {
		b.words[i] = le.Uint64(buf[bloomHeaderBytes+8*i:])
		set += bits.OnesCount64(b.words[i])
	}
	b.set.Store(int64(set))
	b.keys.Store(int64(le.Uint64(buf[40:])))
	return b, le.Uint64(buf[32:]), nil
}

// IsBloom reports whether a file that begins with head may be a filter of that store, or what is left of one.
func IsBloom(head []byte, uuid kv.UUID) bool {
	return vfs.Begins(head, bloomMagic) && (len(head) < 32 || vfs.Blank(head[:32]) || kv.UUID(head[16:32]) == uuid)
}

// ForeignBloom returns [ErrForeign] if path is a sound filter of another store, and nil otherwise. It reads all of the file only if its
// UUID is not the store's.
func ForeignBloom(fsys vfs.FS, path string, uuid kv.UUID) error {
	head, err := vfs.Head(fsys, path)
	if err != nil || IsBloom(head, uuid) || !bytes.HasPrefix(head, []byte(bloomMagic)) {
		return nil
	}
	if _, _, err := ReadBloom(fsys, path, uuid); errors.Is(err, ErrForeign) {
		return err
	}
	return nil
}

// WriteBloom replaces the filter's file, atomically and durably: lsn says up to which frame all keys are in it. Keys may be
// added meanwhile; whether those are in the file is left open.
func WriteBloom(fsys vfs.FS, dir, path string, b *Bloom, uuid kv.UUID, lsn uint64) error {
	return vfs.WriteAtomic(fsys, dir, path, encodeBloom(b, uuid, lsn), func(head []byte) bool { return IsBloom(head, uuid) })
}

// ReadBloom reads a filter and the LSN up to which it is complete. It returns [ErrMissing], [ErrForeign], or damage that
// answers errors.Is with damage.ErrCorrupt.
func ReadBloom(fsys vfs.FS, path string, uuid kv.UUID) (*Bloom, uint64, error) {
	buf, err := vfs.ReadAll(fsys, path, bloomHeaderBytes+maxBloomBits/8+sumBytes)
	var large *vfs.TooLargeError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, fmt.Errorf("%w: %s", ErrMissing, path)
	case errors.As(err, &large), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, 0, damage.Wrap(path, 0, "Bloom file", err)
	case err != nil:
		return nil, 0, err
	}
	return decodeBloom(path, buf, uuid)
}
