package db

import "github.com/dormousekv/dormouse/kv"

// Reason says why a match or a restore covers no more tokens than it does:
//
//	type Reason struct {
//		Code  ReasonCode
//		At    int   // the position it is about
//		Group int   // the group whose rows are missing, for WindowMissing and StateMissing
//		Err   error // the damage, for Damaged
//	}
//
// The zero Reason says nothing, not even that all is there.
type Reason = kv.Reason

// ReasonCode is the kind of a [Reason].
type ReasonCode = kv.ReasonCode

// The codes of a Reason. [kv.ReasonCode] says when each is given.
const (
	NoReason      = kv.NoReason
	Complete      = kv.Complete
	NothingStored = kv.NothingStored
	Diverged      = kv.Diverged
	Ends          = kv.Ends
	InSpan        = kv.InSpan
	WindowMissing = kv.WindowMissing
	StateMissing  = kv.StateMissing
	Damaged       = kv.Damaged
	Gone          = kv.Gone
	TooShort      = kv.TooShort
	LookupOff     = kv.LookupOff
	MemoryShort   = kv.MemoryShort
	Collision     = kv.Collision
)
