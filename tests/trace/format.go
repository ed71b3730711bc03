package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	formatMagic   = 0x43525444 // "DTRC"
	formatVersion = 1

	headerBytes     = 12
	maxPromptTokens = 1 << 20
	maxTotalBlocks  = 1 << 22 // over all requests
)

var (
	// errMagic is returned when the bytes are no trace at all.
	errMagic = errors.New("not a trace file")
	// errVersion is returned when the bytes are a trace of a format this code doesn't know.
	errVersion = errors.New("unknown trace version")
	// errMalformed is returned when a trace contradicts itself.
	errMalformed = errors.New("malformed trace")
)

// The plain bytes of a trace, before zstd:
//
//	 0        4         6            8          12
//	+--------+---------+------------+-----------+----------------------------------------------------+
//	| magic  | version | block size | requests  | 4 columns of uvarints, one value a request in each |
//	| "DTRC" | u16 = 1 | u16 tokens | u32       | milliseconds since the request before              |
//	|        |         |            |           | prompt tokens                                      |
//	|        |         |            |           | output tokens                                      |
//	|        |         |            |           | 1 + id of the deepest block seen before, or 0      |
//	+--------+---------+------------+-----------+----------------------------------------------------+
//
// Ids count up in order of first appearance, so the deepest old block and the number of tokens say it all: the blocks
// above it are its ancestors, those below it are new.

func encode(requests []Request) ([]byte, error) {
	out := binary.LittleEndian.AppendUint32(nil, formatMagic)
	out = binary.LittleEndian.AppendUint16(out, formatVersion)
	out = binary.LittleEndian.AppendUint16(out, MooncakeBlockTokens)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(requests)))

	var before time.Duration
	for _, r := range requests {
		out = binary.AppendUvarint(out, uint64((r.Arrived-before)/time.Millisecond))
		before = r.Arrived
	}
	for _, r := range requests {
		out = binary.AppendUvarint(out, uint64(r.PromptTokens))
	}
	for _, r := range requests {
		out = binary.AppendUvarint(out, uint64(r.OutputTokens))
	}
	next := uint32(0)
	for i, r := range requests {
		old := uint64(0)
		for _, id := range r.Blocks {
			if id < next {
				old = uint64(id) + 1
			} else if id == next {
				next++
			} else {
				return nil, fmt.Errorf("trace: request %d: block id %d comes before %d", i, id, next)
			}
		}
		out = binary.AppendUvarint(out, old)
	}
	return out, nil
}

func decode(plain []byte) ([]Request, error) {
	if len(plain) < headerBytes {
		return nil, fmt.Errorf("trace: %d bytes, a header has %d: %w", len(plain), headerBytes, errMagic)
	}
	if m := binary.LittleEndian.Uint32(plain); m != formatMagic {
		return nil, fmt.Errorf("trace: magic %#x, expected %#x: %w", m, formatMagic, errMagic)
	}
	if v := binary.LittleEndian.Uint16(plain[4:]); v != formatVersion {
		return nil, fmt.Errorf("trace: version %d, expected %d: %w", v, formatVersion, errVersion)
	}
	if b := binary.LittleEndian.Uint16(plain[6:]); b != MooncakeBlockTokens {
		return nil, fmt.Errorf("trace: blocks of %d tokens, expected %d: %w", b, MooncakeBlockTokens, errMalformed)
	}
	count := uint64(binary.LittleEndian.Uint32(plain[8:]))
	rest := plain[headerBytes:]
	if count > uint64(len(rest))/4 {
		return nil, fmt.Errorf("trace: %d requests in %d bytes: %w", count, len(rest), errMalformed)
	}

	column := func(name string, limit uint64) ([]uint64, error) {
		values := make([]uint64, count)
		for i := range values {
			v, n := binary.Uvarint(rest)
			if n <= 0 || v > limit {
				return nil, fmt.Errorf("trace: %s of request %d at offset %d: %d is over %d or cut off: %w",
					name, i, len(plain)-len(rest), v, limit, errMalformed)
			}
			values[i], rest = v, rest[n:]
		}
		return values, nil
	}
	elapsed, err1 := column("time", 1<<31)
	prompt, err2 := column("prompt tokens", maxPromptTokens)
	output, err3 := column("output tokens", maxPromptTokens)
	old, err4 := column("deepest old block", maxTotalBlocks)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("trace: %d bytes after the last column: %w", len(rest), errMalformed)
	}

	requests := make([]Request, count)
	var parents []int64 // of each block seen so far; -1: the first block of a prompt
	var now time.Duration
	total := 0
	for i := range requests {
		now += time.Duration(elapsed[i]) * time.Millisecond
		size := int(prompt[i]+MooncakeBlockTokens-1) / MooncakeBlockTokens
		if total += size; total > maxTotalBlocks {
			return nil, fmt.Errorf("trace: over %d blocks at request %d: %w", maxTotalBlocks, i, errMalformed)
		}
		if old[i] > uint64(len(parents)) {
			return nil, fmt.Errorf("trace: request %d names block %d of %d: %w", i, old[i]-1, len(parents), errMalformed)
		}
		blocks := make([]uint32, 0, size)
		deepest := int64(old[i]) - 1
		for id := deepest; id >= 0; id = parents[id] {
			if len(blocks) == size {
				return nil, fmt.Errorf("trace: request %d is shorter than the prefix it shares: %w", i, errMalformed)
			}
			blocks = append(blocks, uint32(id))
		}
		slices.Reverse(blocks)
		for len(blocks) < size {
			parents = append(parents, deepest)
			deepest = int64(len(parents)) - 1
			blocks = append(blocks, uint32(deepest))
		}
		requests[i] = Request{Arrived: now, PromptTokens: int(prompt[i]), OutputTokens: int(output[i]), Blocks: blocks}
	}
	return requests, nil
}
