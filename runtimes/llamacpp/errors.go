package llamacpp

import "errors"

var (
	// ErrRefused is returned by Attach when states of this context cannot be kept safely; the message says why.
	ErrRefused = errors.New("llamacpp: refused")
	// ErrIdentity is returned when a context is not the one that its identity says: it computes other rows than those stored under it
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
)

// errNoContext is returned instead of a panic.
var errNoContext = errors.New("llamacpp: the context.Context is nil")
