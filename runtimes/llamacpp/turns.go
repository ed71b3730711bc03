package llamacpp

import (
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// turns are those that have not ended, and are told to the store when they end.
type turns struct {
	model *db.Model
	of    map[int]*turn // by sequence
}

// turn is what the session saw of a turn that has not ended.
type turn struct {
	db.Observation
	end int // tokens that the sequence had after the last Prefill; 0: there was none
}

// begins ends the sequence's turn, and begins one that asks for so many tokens.
func (t *turns) begins(sequence, asked int) *turn {
	t.ends(sequence)
	turn := &turn{Observation: db.Observation{Asked: asked}}
	t.of[sequence] = turn
	return turn
}

// goesOn is the turn to which a Prefill from that position belongs.
func (t *turns) goesOn(prompt kv.Prompt, from, sequence int) *turn {
	now := t.of[sequence]
	if now != nil && now.end > 0 && now.end != from {
		now.Decoded += max(0, from-now.end)
		t.ends(sequence)
		now = nil
	}
	if now == nil {
		now = &turn{}
		t.of[sequence] = now
	}
	if now.end == 0 {
		now.Reused = from
	}
	now.Asked = max(now.Asked, len(prompt.Tokens))
	return now
}

// observe ends the sequence's turn with so many tokens that the caller decoded.
func (t *turns) observe(sequence, decoded int, took time.Duration) {
	now := t.of[sequence]
	if now == nil {
		now = &turn{}
		t.of[sequence] = now
	}
	if now.end == 0 && decoded > 0 {
		now.Reused = now.Loaded
	}
	now.Decoded, now.Decode = now.Decoded+decoded, now.Decode+took
	t.ends(sequence)
}

// ends tells the store of a sequence's turn, if there is one.
func (t *turns) ends(sequence int) {
	if now := t.of[sequence]; now != nil {
		delete(t.of, sequence)
		now.Unused = max(0, now.Loaded-now.Reused)
		t.model.Observe(now.Observation)
	}
}

// endAll ends all turns.
func (t *turns) endAll() {
	for sequence := range t.of {
		t.ends(sequence)
	}
}

// prefilled notes that the positions [from, to) were evaluated.
func (t *turn) prefilled(from, to int, took time.Duration) {
	t.end, t.Prefilled, t.Prefill = to, t.Prefilled+to-from, t.Prefill+took
}
