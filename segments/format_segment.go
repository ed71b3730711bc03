package segments

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/packed"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

const (
	segmentMagic   = "DORM.SEG"
	segmentVersion = 3

	segmentHeaderBytes = 128
	segmentCRCOffset   = 124

	segmentSuffix = ".seg"
)

// segmentName is the name of a segment's file: ids are never used twice.
func segmentName(id uint64) string { return fmt.Sprintf("%016x%s", id, segmentSuffix) }

func parseSegmentName(name string) (id uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 16, 64)
	return id, err == nil && name == segmentName(id)
}

// Named reports whether a file of that name, in the folder of the segments, has the name of one.
func Named(name string) bool {
	id, ok := parseSegmentName(name)
	return ok && id != 0
}

// segmentHeader is the start of a segment file, decoded.
type segmentHeader struct {
	uuid       kv.UUID
	seed       kv.Seed
	hashID     uint32
	model      kv.Fingerprint
	id         uint64
	planned    int64 // the size at which the file was created, and has until it is sealed
	alignment  int64
	descriptor []byte // with the name: encodeDescriptor
}

// end is where the first record begins.
func (h *segmentHeader) end() int64 {
	return alignUp(int64(segmentHeaderBytes+len(h.descriptor)), h.alignment)
}

// The header of a segment file. Its CRC32C covers it with name and descriptor, and leaves out only its own four bytes.
//
//	  0 ┌──────────────────────┬─────────┬──────────┬──────────────────┐
//	    │ magic "DORM.SEG"     │ u16 ver │ u16 zero │ u32 hash id      │
//	 16 ├──────────────────────┴─────────┴──────────┴──────────────────┤
//	    │ store UUID 16                 │ store seed 16                │
//	 48 │ fingerprint 16                │ u64 id        │ u64 planned  │
//	 80 │ u32 alignment │ u32 descriptor length │ u8 cipher, 3 zero  │
//	 92 │ u32 key id    │ zero 28                       │ u32 CRC32C │
//	128 ├──────────────────────────────────────────────────────────────┤
//	    │ string name │ bytes descriptor │ zero up to the alignment    │
//	    └──────────────────────────────────────────────────────────────┘ the first record
func encodeSegmentHeader(h *segmentHeader) []byte {
	b := make([]byte, h.end())
	copy(b, segmentMagic)
	le.PutUint16(b[8:], segmentVersion)
	le.PutUint32(b[12:], h.hashID)
	copy(b[16:], h.uuid[:])
	copy(b[32:], h.seed[:])
	copy(b[48:], h.model[:])
	le.PutUint64(b[64:], h.id)
	le.PutUint64(b[72:], uint64(h.planned))
	le.PutUint32(b[80:], uint32(h.alignment))
	le.PutUint32(b[84:], uint32(len(h.descriptor)))
	copy(b[segmentHeaderBytes:], h.descriptor)
	le.PutUint32(b[segmentCRCOffset:], crcAround(b[:segmentHeaderBytes+len(h.descriptor)], segmentCRCOffset))
	return b
}

// decodeSegmentHeader checks the header at the start of a file. b may be shorter than the file; a header that does not
// fit into it is damage. With an id or UUID of another file the error says so.
func decodeSegmentHeader(b []byte, uuid kv.UUID, id uint64) (h segmentHeader, _ *damage.Error) {
	fail := func(off int64, what string, expected, found any) (segmentHeader, *damage.Error) {
		return segmentHeader{}, damage.New("", off, what, expected, found)
	}
	if len(b) < segmentHeaderBytes {
		if isZero(b) {
			return segmentHeader{}, &damage.Error{What: "segment header", Expected: "a header", Found: fmt.Sprintf("a file of %d bytes", len(b)), Err: ErrRemains}
		}
		return fail(0, "segment header", fmt.Sprintf("%d bytes", segmentHeaderBytes), len(b))
	}
	if string(b[:8]) != segmentMagic {
		if isZero(b[:segmentHeaderBytes]) {
			return segmentHeader{}, &damage.Error{What: "segment header", Expected: "a header", Found: "zeros", Err: ErrRemains}
		}
		return fail(0, "segment magic", fmt.Sprintf("%q", segmentMagic), fmt.Sprintf("%q", b[:8]))
	}
	if v := le.Uint16(b[8:]); v != segmentVersion {
		_, e := fail(8, "segment version", segmentVersion, v)
		known := bytes.Clone(b[:min(len(b), segmentHeaderBytes+maxDescriptorBytes)])
		le.PutUint16(known[8:], segmentVersion)
		if _, bad := decodeSegmentHeader(known, uuid, id); bad != nil { // else only the version is damaged: a newer release's checksum covers its own
			e.Err = ErrVersion
		}
		return segmentHeader{}, e
	}
	alignment, length := uint64(le.Uint32(b[80:])), uint64(le.Uint32(b[84:]))
	switch {
	case length > maxDescriptorBytes || length > uint64(len(b)-segmentHeaderBytes):
		return fail(84, "descriptor length", fmt.Sprintf("at most %d", min(maxDescriptorBytes, len(b)-segmentHeaderBytes)), length)
	case alignment < minAlignment || alignment > maxAlignment || alignment&(alignment-1) != 0:
		return fail(80, "segment alignment", fmt.Sprintf("a power of two from %d to %d", minAlignment, maxAlignment), alignment)
	}
	covered := b[:segmentHeaderBytes+length]
	if want, got := le.Uint32(b[segmentCRCOffset:]), crcAround(covered, segmentCRCOffset); want != got {
		return fail(segmentCRCOffset, "segment header checksum", fmt.Sprintf("%08x", want), fmt.Sprintf("%08x", got))
	}
	if id := le.Uint32(b[12:]); id != kv.HashID {
		_, e := fail(12, "hash of a segment's keys", kv.HashID, id)
		e.Err = ErrVersion
		return segmentHeader{}, e
	}
	for _, zero := range [][2]int{{10, 12}, {88, segmentCRCOffset}} { // a cipher and its key among them
		if i := vfs.FirstNonZero(b[zero[0]:zero[1]]); i >= 0 { // the checksum is right: another release has given that byte a meaning
			at := zero[0] + i
			_, e := fail(int64(at), "reserved byte of a segment header", 0, b[at])
			e.Err = ErrVersion
			return segmentHeader{}, e
		}
	}
	planned := le.Uint64(b[72:])
	h = segmentHeader{
		uuid: kv.UUID(b[16:32]), seed: kv.Seed(b[32:48]), hashID: le.Uint32(b[12:]),
		model: kv.Fingerprint(b[48:64]), id: le.Uint64(b[64:]),
		planned: int64(planned), alignment: int64(alignment),
		descriptor: covered[segmentHeaderBytes:],
	}
	switch {
	case h.uuid != uuid:
		_, e := fail(16, "store UUID of a segment", uuid, h.uuid)
		e.Err = ErrForeign
		return segmentHeader{}, e
	case h.id != id:
		return fail(64, "segment id", id, h.id)
	case planned > 2*maxRecordBytes || h.planned < h.end():
		return fail(72, "planned segment size", fmt.Sprintf("%d to %d", h.end(), int64(2*maxRecordBytes)), planned)
	}
	return h, nil
}

// encodeDescriptor returns the name and the packed descriptor, as the log has them.
func encodeDescriptor(d *kv.Descriptor) ([]byte, error) {
	b := packed.AppendBytes(packed.AppendBytes(nil, d.Name), packed.Append(nil, d))
	if len(b) > maxDescriptorBytes {
		return nil, fmt.Errorf("%w: a descriptor of %d bytes, at most %d", errRecord, len(b), maxDescriptorBytes)
	}
	return b, nil
}

func decodeDescriptor(b []byte) (kv.Descriptor, error) {
	r := packed.NewReader(b)
	name, body := r.Text(), r.Shared()
	if err := r.End(); err != nil {
		return kv.Descriptor{}, err
	}
	d, err := packed.Decode(body)
	if errors.Is(err, vfs.ErrVersion) { // which refuses a store: this is about one segment
		err = fmt.Errorf("%w: %v", ErrVersion, err)
	}
	d.Name = name
	return d, err
}

// claimedDescriptor is the length of the descriptor that follows a header, if that can be; it is checked by nothing yet.
func claimedDescriptor(header []byte) int64 {
	return int64(min(le.Uint32(header[84:]), maxDescriptorBytes))
}

// marked reports whether a file that begins with b, and has no sound header, may be a segment of this store: there is nothing there
// yet, or what a power cut left, or a header with damage in it.
func marked(b []byte, uuid kv.UUID) bool {
	return vfs.Begins(b[:min(len(b), 512)], segmentMagic) || len(b) >= 32 && kv.UUID(b[16:32]) == uuid
}

// uuidOfHeader is the store that a header names.
func uuidOfHeader(b []byte) kv.UUID {
	if len(b) < segmentHeaderBytes {
		return kv.UUID{}
	}
	return kv.UUID(b[16:32])
}
