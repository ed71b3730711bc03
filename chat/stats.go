package chat

import (
	"slices"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// Stats count what a conversation did since it was opened. Tokens and durations are sums.
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

// TurnStats count what one turn did.
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

// TurnInfo is a turn as a policy and a user see it.
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

// Stats returns what was counted.
func (c *Conversation) Stats() Stats {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	return c.stats
}

// Stats returns what was counted.
func (t *Turn) Stats() TurnStats {
	t.c.h.mu.Lock()
	defer t.c.h.mu.Unlock()
	return t.stats
}

// Turns lists the turns of the log, the oldest first. Those that were evicted before the log was rewritten are not in it any more.
func (c *Conversation) Turns() []TurnInfo {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	return c.infos(nil)
}

// lastView is what the open turn, or else the last one, attends to beside itself, and the number of the last one's part; -1 if it is open, or
// there is none.
func (c *Conversation) lastView() (view []kv.Range, last int) {
	if c.turn != nil {
		return c.turn.part.view, -1
	}
	for i := len(c.log.parts) - 1; i >= 0; i-- {
		if p := &c.log.parts[i]; p.kind == turnPart {
			return p.view, i
		}
	}
	return nil, -1
}

func (c *Conversation) infos(query []float32) (out []TurnInfo) {
	view, last := c.lastView()
	for i := range c.log.parts {
		p := &c.log.parts[i]
		if p.kind != turnPart {
			continue
		}
		tokens := slices.Clone(c.log.tokens[p.start:p.end])
		out = append(out, TurnInfo{
			ID: TurnID(p.id), Message: tokens[:p.turn.user:p.turn.user], Answer: tokens[p.turn.user:], Tokens: len(tokens), Evicted: p.gone,
			InView:    !p.gone && (i == last || length(clipped(view, p.start, p.end)) == p.end-p.start),
			Relevance: Cosine(query, p.turn.embedding), Priority: p.turn.priority, At: p.turn.at,
			Meta: slices.Clone(p.turn.meta), Embedding: slices.Clone(p.turn.embedding),
		})
	}
	return out
}

// Piece is a stretch of the log.
type Piece struct {
	Kind       string // system, fact, turn
	Start, End int    // positions
	Name       string // of a fact
	Turn       TurnID
	Gone       bool // superseded, removed or evicted
	Visible    int  // rows that the open turn, or the last one, attends to
}

// View shows what the open turn, or the last one, attends to, piece by piece of the log.
func (c *Conversation) View() (pieces []Piece) {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	view, last := c.lastView()
	if last >= 0 {
		view = merged(append(slices.Clone(view), c.log.parts[last].span()))
	}
	for i := range c.log.parts {
		p := &c.log.parts[i]
		x := Piece{Kind: [...]string{"system", "fact", "turn"}[p.kind], Start: p.start, End: p.end, Name: p.name, Gone: p.gone, Visible: length(clipped(view, p.start, p.end))}
		if p.kind == turnPart {
			x.Turn = TurnID(p.id)
		}
		pieces = append(pieces, x)
	}
	return pieces
}
