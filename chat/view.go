package chat

import (
	"slices"

	"github.com/dormousekv/dormouse/kv"
)

// Turns lists the turns of the log, the oldest first. A rewrite of the log leaves out turns that were evicted before it.
func (c *Conversation) Turns() []TurnInfo {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	return c.infos(nil)
}

// lastView returns what the open turn attends to beside itself, and -1. If no turn is open, it returns that of the last turn, and the number of
// its part.
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

// Piece is a stretch of the log: the system prompt, a fact or a turn.
type Piece struct {
	Kind       string // system, fact, turn
	Start, End int    // positions
	Name       string // of a fact
	Turn       TurnID
	Gone       bool // superseded, removed or evicted
	Visible    int  // rows that the turn attends to
}

// View lists the pieces of the log, and how much of each the open turn attends to. If no turn is open, that is the last turn.
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
