package llamacpp

import (
	"fmt"
	"log/slog"
	"math"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// DecodeFunc evaluates tokens at the positions first, first+1, … of a sequence in one llama_decode call, with the logits
// of the last one. It is the caller's, because llama_batch is passed by value. If llama_decode returned 1, its error wraps
// kv.ErrFull: there is no room, and nothing has changed.
type DecodeFunc func(tokens []kv.Token, first, sequence int) error

// Options say what a context is and how its states are stored. Identity.Path or Identity.Weights must be set.
type Options struct {
	Identity

	// Decode evaluates tokens. Prefill needs it. Attach evaluates a few at a high position, to learn the format of states and to see that
	// the context computes what is stored. Restore, Save and Capture evaluate one where llama.cpp may have put something off.
	Decode DecodeFunc
	// Sequence is the one in which Attach evaluates them, if it is empty, and it is empty again afterwards. Else Attach takes another
	// empty one. If there is none, or no room beside the others, Attach takes out what this one holds, or the longest one, and puts it back.
	Sequence int
	// Adapters are the LoRA adapters that are set on the context (llama_set_adapters_lora), as in kv.Prompt.Adapters. Prompts with
	// others are refused until [Session.Recheck]. Leave out adapters that change no row: they are refused as not set.
	Adapters []kv.Adapter
	// DiscardCanary has Attach drop all that is stored of this version of the model, with whatever adapters, where it would return an
	// [IdentityError]. It is for stored rows that are the wrong ones. Set it once, not always.
	DiscardCanary bool

	// RowsOnly refuses a context that could only be kept as Opaque or Hybrid.
	RowsOnly bool
	// OpaqueOnly keeps whole blobs even where rows are understood.
	OpaqueOnly bool
	// Rotated says whether a quantized cache is Hadamard-rotated. Releases before 0.6.0 that do not tell their version need it.
	// Nil: find out.
	Rotated *bool

	// BlockTokens is the size of a block, as in kv.Descriptor. 0: chosen by the model's shape.
	BlockTokens int
	// CaptureTokens is after how many tokens Prefill looks at the window layers of a sliding-window model. llama.cpp
	// hands out the rows in the window before the last token only. So a larger number than the window leaves positions
	// at which nothing can be restored. 0: the window, or n_ubatch if that is less.
	CaptureTokens int
	// CaptureBytes bounds what all sequences of the session hold until Save: window rows, and states on the way of prompts. Beyond it,
	// window rows are saved, or dropped of another sequence if that holds more. Of the states the first ones go, and one that is larger
	// than the bound is not kept. 0: 256 MiB.
	CaptureBytes int64
	// Align restores only prefixes of a multiple of so many tokens. With the size of Prefill's batches, the rest is evaluated in the
	// same batches as without a restore, and from lossless rows the logits are the same to the last bit. Of a sliding-window model that
	// holds only until its ring of cells has wrapped, or with swa_full: llama.cpp adds up in the order of cells. 0: any.
	Align int

	// TokenSpans has Prefill evaluate a span of one position as the token that stands there: such spans are the caller's marks, not
	// images. Prefill lets each token see all that lies before it, so a span that says otherwise is not for Prefill.
	TokenSpans bool

	// Put is how rows are stored. Of an Opaque or Hybrid model, KeepStates 0 means 4, and -1 all.
	Put db.PutOptions
	// Logger gets the mode that was chosen, and why. Nil: slog.Default().
	Logger *slog.Logger
}

// Validate returns an error that names the field at fault, its value, and what is allowed.
func (o Options) Validate() error {
	bad := func(field string, value any, allowed string) error {
		return fmt.Errorf("llamacpp: Options.%s is %v: expected %s", field, value, allowed)
	}
	for _, n := range []struct {
		field string
		value int64
		what  string
	}{
		{"BlockTokens", int64(o.BlockTokens), "a number of tokens, or 0 to choose one"}, {"CaptureTokens", int64(o.CaptureTokens), "a number of tokens, or 0 for the window"},
		{"CaptureBytes", o.CaptureBytes, "a number of bytes, or 0 for 256 MiB"}, {"Align", int64(o.Align), "a number of tokens, or 0 for any"},
	} {
		if n.value < 0 {
			return bad(n.field, n.value, n.what)
		}
	}
	for _, n := range []struct {
		field string
		value float32
	}{{"RopeBase", o.RopeBase}, {"RopeScale", o.RopeScale}} {
		if !(n.value >= 0 && n.value <= math.MaxFloat32) { // of a form that NaN fails
			return bad(n.field, n.value, "a number above 0, or 0 for the model's own")
		}
	}
	if o.Put.KeepStates < -1 {
		return bad("Put.KeepStates", o.Put.KeepStates, "a number of states, 0 for 4, or -1 for all")
	}
	p := kv.Prompt{Adapters: o.Adapters}
	if err := p.Validate(); err != nil {
		return fmt.Errorf("llamacpp: Options.Adapters: %w", err)
	}
	return o.Put.Validate()
}
