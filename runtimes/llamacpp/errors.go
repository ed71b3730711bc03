package llamacpp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dormousekv/dormouse/kv"
)

var (
	// ErrRefused is returned by Attach when states of this context cannot be kept safely; the message says why.
	ErrRefused = errors.New("llamacpp: refused")
	// ErrIdentity is returned when a context is not what its identity says. It computes other rows than those stored under it
	// ([IdentityError]), runs another model than the file that is named, or has other adapters than those that were said.
	ErrIdentity = errors.New("llamacpp: not the model that it is said to be")
	// ErrNeedDecode is returned when something has to be evaluated and Options.Decode is nil.
	ErrNeedDecode = errors.New("llamacpp: Options.Decode is needed")
	// ErrNotEmpty is returned by Restore for a sequence that has tokens: a state replaces what is there.
	ErrNotEmpty = errors.New("llamacpp: the sequence is not empty")
	// ErrSequence is returned for a sequence that the context does not have: llama.cpp would abort the process.
	ErrSequence = errors.New("llamacpp: no such sequence")
	// ErrState is returned when llama.cpp did not hand out or accept a sequence state as it should.
	ErrState = errors.New("llamacpp: sequence state")
	// ErrPositions is returned by Save when the cache does not hold the prompt that it is said to hold: it is empty, or
	// its first positions are gone.
	ErrPositions = errors.New("llamacpp: positions in the cache do not fit the prompt")
	// ErrReplaced is returned by a session after another one was attached to the same llama.cpp context.
	ErrReplaced = errors.New("llamacpp: another session was attached to the context")
	// ErrTooLong is returned by Prefill for a prompt that is longer than the context, before any of it is evaluated.
	ErrTooLong = errors.New("llamacpp: the prompt is longer than the context")
	// ErrLineage is returned by Save and Capture when a sequence cannot hold what it is said to hold. The error is a
	// [*LineageError].
	ErrLineage = errors.New("llamacpp: the sequence does not hold the prompt")
)

// LineageError says from which position on a sequence contradicts a prompt. Nothing was stored. What lies before can be stored if it
// passes the same checks: Save(ctx, prompt.Prefix(From), sequence).
//
// There are three causes. Positions were shifted or divided (llama_memory_seq_add, llama_memory_seq_div): such rows are
// approximations, however many tokens are evaluated behind them. The prompt is not that of the sequence. Or the caller changed the
// sequence in honest ways and did not say so ([Session.Reset], [Session.Truncate]).
type LineageError struct {
	Sequence int
	From     int // the first position that contradicts
	Why      string
}

func (e *LineageError) Error() string {
	return fmt.Sprintf("%v from position %d on: sequence %d: %s", ErrLineage, e.From, e.Sequence, e.Why)
}

// Is makes errors.Is(err, ErrLineage) true.
func (e *LineageError) Is(target error) bool { return target == ErrLineage }

// errNoContext is returned instead of a panic.
var errNoContext = errors.New("llamacpp: the context.Context is nil")

// IdentityError is an ErrIdentity: the context computes other rows than those that are stored under its identity. Either may be the
// wrong one: the context, or the first one that was ever attached.
type IdentityError struct {
	Fingerprint kv.Fingerprint
	Adapters    []kv.Adapter
	Difference  float64  // in multiples of what numerics explain: batches, kernels, flash attention, releases
	Plane       string   // that decided: a layer's K or V
	Looks       string   // what it looks like
	Settings    []string // those that llama.cpp tells and that differ: "name: stored, now"
}

func (e *IdentityError) Error() string {
	settings := "all settings that llama.cpp tells are the same; it does not tell RoPE frequency base, scale and YaRN, nor adapters"
	if len(e.Settings) > 0 {
		settings = "of the settings that llama.cpp tells differ " + strings.Join(e.Settings, "; ")
	}
	return fmt.Sprintf("%v: the context computes other rows than those stored under fingerprint %s: they differ %.2g times as much as numerics explain, "+
		"first in %s. %s; %s. Make the context as it was made before, or say in Options what is different (Identity, Adapters); if the stored rows are the wrong ones, "+
		"Options.DiscardCanary or Store.Retire drops them all", ErrIdentity, e.Fingerprint, e.Difference, e.Plane, e.Looks, settings)
}

func (e *IdentityError) Unwrap() error { return ErrIdentity }
