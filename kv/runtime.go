package kv

import "errors"

// ErrFull is returned when the cache of a runtime has no room for what is to be decoded or loaded. Nothing was changed.
var ErrFull = errors.New("kv: the cache is full")

// ErrUnsupported is returned when a runtime, or the model that it runs, cannot do what is asked.
var ErrUnsupported = errors.New("kv: not supported")

// Step is one token of a batch: Token is decoded at position Pos of sequence Seq and attends to what the sequence holds, itself included.
type Step struct {
	Token    Token
	Pos, Seq int
	Logits   bool // they are wanted
}

// Range is the positions [Start, End).
type Range struct{ Start, End int }

// Len is the number of positions.
func (r Range) Len() int { return max(0, r.End-r.Start) }

// Limits are what a runtime has room for, and what it cannot do.
type Limits struct {
	Sequences  int // numbered from 0
	Cells      int // rows, of all sequences; a row that sequences share counts once
	Batch      int // steps of one Decode
	Trained    int // positions that the model was trained for; 0: not known
	Vocabulary int // tokens are below it; 0: not known
	Window     int // positions of the smallest attention window; 0: every layer attends to everything

	// Missing says what keeps conversations from being held here: rows that cannot be cut, a cache that is not shared between
	// sequences. Empty: nothing.
	Missing string
}
