package chat

import (
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// Stats counts what a conversation has done since it was opened. Tokens and durations are sums.
type Stats struct {
	Turns     int // committed
	Evicted   int // turns
	Loaded    int // rows that came from the store
	Prefilled int // tokens of messages and facts, and of turns that were not stored
	Decoded   int // tokens of answers
	Stored    int // rows
	Drafted   int // tokens that Verify was given
	Accepted  int // of these

	Rewrites  int
	Rewritten int           // tokens that rewrites computed
	Rewrite   time.Duration // computing them
	Swap      time.Duration // of the last rewrite: what a turn that wanted to begin waited for

	Lookup, Load, Prefill, Decode, Store time.Duration

	StoreErrors   int
	StoreError    error // the last one
	RewriteErrors int
	RewriteError  error
}

// TurnStats counts what one turn has done.
type TurnStats struct {
	View                  int           // rows that it attends to, beside its own
	Reused                int           // of these, that were in the cache when it began
	Loaded                int           // rows that came from the store for it, those of hidden turns included
	Prefilled             int           // tokens that were computed before the first one of the answer
	Rewritten             int           // tokens of a rewrite that it had to wait for
	Decoded               int           // tokens of the answer
	Show                  time.Duration // making the view: what it costs to switch to a conversation whose rows are in the cache
	Begin                 time.Duration // from Begin to the first scores
	Lookup, Load, Prefill time.Duration // of these
	Decode                time.Duration
	Stored                int
	StoreError            error
}

// TurnInfo describes a turn, for a policy and for users.
type TurnInfo struct {
	ID        TurnID
	Message   []kv.Token
	Answer    []kv.Token
	Tokens    int // of both
	Evicted   bool
	InView    bool    // the last turn attended to it, or it is the last turn
	Relevance float64 // cosine similarity to the query; 0 without one
	Priority  int
	At        time.Time
	Meta      []byte
	Embedding []float32
}
