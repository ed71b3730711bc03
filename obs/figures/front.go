package figures

import "time"

// Kind is what requests are counted by.
type Kind struct {
	Outcome Outcome
	Reason  string
}

// Front is what a front has done since it began, and how it is now. Of what [Recorder.Read] returns all is the caller's.
type Front struct {
	Since    time.Time
	Requests map[Kind]int64
	// Tokens of prompts of which it is known what became of them: Asked is Reused and Computed together. FromStore are those of Reused that came out
	// of the store; the server had the others.
	Asked, Reused, Computed, FromStore int64
	// Unknown are tokens of all other prompts: of cancelled requests, say.
	Unknown int64
	// Restored are tokens that were brought out of the store, and Unused those of them that were computed again.
	Restored, Unused         int64
	Saved                    time.Duration
	Lookup, Restore, Prefill time.Duration

	Rates  []Rate    // by model
	Recent []Request // the last hundred, the newest first
	Series Series

	// The recorder does not know these; a front fills them in.

	// SavedEver is the time that was saved since EverSince, in earlier starts, too; the zero time: nothing is known of them.
	SavedEver time.Duration
	EverSince time.Time

	Slots, Busy int    // of the server; no slots: there is no such thing
	Restarts    int64  // of the server, by us
	Server      string // a few words on how it is: "running", "starting"; empty: there is none
	Store       string // why there is no store, if there is none: "another dormouse has it open"
	NotStoring  string // why nothing is stored though there is one: "not storing: 3.9 MiB free, 256 MiB are kept free"
	Notes       []Note
}

// Total is how many requests were counted.
func (f *Front) Total() (n int64) {
	for _, c := range f.Requests {
		n += c
	}
	return n
}

// Count is how many requests ended so.
func (f *Front) Count(o Outcome) (n int64) {
	for k, c := range f.Requests {
		if k.Outcome == o {
			n += c
		}
	}
	return n
}

// Rate is how fast a model computes a prompt, as measured.
type Rate struct {
	Model        string
	PerSecond    float64 // tokens
	Tokens       int64   // of which it was measured
	Measurements int64
}

// Level is how bad it is.
type Level uint8

// From all is well to somebody has to do something.
const (
	Fine Level = iota
	Warn
	Bad
)

func (l Level) String() string { return [...]string{"fine", "warn", "bad"}[min(l, Bad)] }

// Note is a sentence for whoever looks after the front.
type Note struct {
	Level Level
	Text  string
}
