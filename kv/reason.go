package kv

import (
	"errors"
	"fmt"
)

// Reason says why a match or a restore covers no more tokens than it does. The zero Reason says nothing, not even that all is there.
type Reason struct {
	Code  ReasonCode
	At    int   // the position it is about
	Group int   // the group whose rows are missing, for WindowMissing and StateMissing
	Err   error // the damage, for Damaged
}

// ReasonCode is the kind of a [Reason].
type ReasonCode uint8

const (
	// NoReason: nothing was said. It is the code of a Reason that nobody filled in; no match, probe or restore gives it.
	NoReason ReasonCode = iota
	// Complete: everything that was asked for is there.
	Complete
	// NothingStored: no stored prompt of this model, adapters and scope shares even the opening tokens.
	NothingStored
	// Diverged: what is stored goes on with other tokens, or another image, from position At.
	Diverged
	// Ends: what is stored ends at position At.
	Ends
	// InSpan: position At lies inside a span, and prefixes end only at its borders.
	InSpan
	// WindowMissing: rows of a sliding window at position At were not stored.
	WindowMissing
	// StateMissing: there is no stored state at a later position than At.
	StateMissing
	// Damaged: the block at position At is damaged or unreadable.
	Damaged
	// Gone: the block at position At was deleted or evicted after the match.
	Gone
	// TooShort: fewer than OpeningTokens tokens would be reused.
	TooShort
	// LookupOff: the request asked for no lookup.
	LookupOff
	// MemoryShort: the caller's rows end at position At.
	MemoryShort
	// Collision: another prefix has the key of the block at position At.
	Collision
	reasonEnd
)

// ReasonCodes is how many codes there are, NoReason among them.
const ReasonCodes = int(reasonEnd)

var reasonNames = [reasonEnd]string{
	"no reason", "complete", "nothing stored", "diverged", "stored prefix ends", "inside a span", "window rows missing",
	"no state", "damaged", "gone", "too short", "lookup off", "caller's memory ends", "key collision",
}

func (c ReasonCode) String() string {
	if c < reasonEnd {
		return reasonNames[c]
	}
	return fmt.Sprintf("reason(%d)", uint8(c))
}

func (r Reason) String() string {
	switch r.Code {
	case NoReason, Complete, NothingStored, LookupOff, TooShort:
		return r.Code.String()
	case WindowMissing, StateMissing:
		return fmt.Sprintf("%v at token %d (group %d)", r.Code, r.At, r.Group)
	case Damaged:
		return fmt.Sprintf("%v at token %d: %v", r.Code, r.At, r.Err)
	}
	return fmt.Sprintf("%v at token %d", r.Code, r.At)
}

// ErrNotStored is returned when an operation needs a prefix that is not in the store.
var ErrNotStored = errors.New("prefix is not stored")

// NotStoredError says from which position on a prefix is missing. It answers errors.Is(err, ErrNotStored).
type NotStoredError struct {
	Stored int // tokens of the prefix that are in the store
	Needed int // tokens that the operation needs
	Reason Reason
}

func (e *NotStoredError) Error() string {
	return fmt.Sprintf("%v: %d of the %d leading tokens are (%v)", ErrNotStored, e.Stored, e.Needed, e.Reason)
}

// Is reports whether target is ErrNotStored.
func (e *NotStoredError) Is(target error) bool { return target == ErrNotStored }
