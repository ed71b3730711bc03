package trace

import (
	_ "embed"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"
)

// MooncakeBlockTokens is the block size of the requests that [Load] and [LoadSynthetic] return.
const MooncakeBlockTokens = 512

// A Request is one prompt that a service received.
type Request struct {
	Arrived      time.Duration // since the start of the trace
	PromptTokens int
	OutputTokens int

	// Blocks names the blocks of the prompt, first to last; the last one may be partly filled. Ids are chained: an id
	// stands for its block and everything before it, so two prompts that share an id share the whole prefix up to it.
	// Ids count up from 0 in order of first appearance.
	Blocks []uint32
}

//go:embed testdata/mooncake-conversation.trace.zst
var mooncakeConversation []byte

//go:embed testdata/mooncake-synthetic.trace.zst
var mooncakeSynthetic []byte

// maxPlainBytes bounds what an embedded file may unpack to.
const maxPlainBytes = 4 << 20

// Load returns the Mooncake conversation trace, recorded in one hour of a chat service, in order of arrival. Every call
// decodes it anew; the caller owns the result. See testdata/README.md for source and licence.
func Load() ([]Request, error) { return load("conversation", mooncakeConversation) }

// LoadSynthetic returns the Mooncake synthetic trace, built by its publishers from public data sets. See [Load].
func LoadSynthetic() ([]Request, error) { return load("synthetic", mooncakeSynthetic) }

func load(name string, packed []byte) ([]Request, error) {
	plain, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("trace: unpack the embedded Mooncake %s trace: %w", name, err)
	}
	return decode(plain)
}

// Distinct returns the number of distinct blocks in the requests: what a cache would hold that never evicts.
func Distinct(requests []Request) int {
	n := 0
	for _, r := range requests {
		for _, id := range r.Blocks {
			n = max(n, int(id)+1)
		}
	}
	return n
}

func unpack(packed []byte) ([]byte, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPlainBytes))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.DecodeAll(packed, nil)
}

func pack(plain []byte) ([]byte, error) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return e.EncodeAll(plain, nil), nil
}
