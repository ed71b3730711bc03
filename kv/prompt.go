package kv

import (
	"errors"
	"fmt"
	"math"
)

// ErrPrompt is returned when a prompt contradicts itself: a span outside it, overlapping spans, a scope that begins behind its end.
var ErrPrompt = errors.New("kv: invalid prompt")

// MaxTokens is the longest prompt: positions are stored in 32 bits.
const MaxTokens = math.MaxInt32

// Prompt is what a model is conditioned on. Two prompts share a stored prefix only if tokens, spans, adapters and scope
// agree up to there. A Prompt is read, never kept: the caller may change it after a call returns.
type Prompt struct {
	Tokens   []Token
	Spans    []Span    // sorted by Start, not overlapping
	Adapters []Adapter // in the order in which they apply

	// Scope is whose data follows ScopeStart: a user, a tenant, a conversation owner. Blocks before ScopeStart are
	// shared with every scope; blocks from there on are found only by prompts of the same scope. An empty Scope
	// shares everything, and has no start.
	Scope      string
	ScopeStart int // counts tokens: at most len(Tokens), and inside no span
}

// Span is a run of positions that stand for something other than their token ids: an image, an audio clip. It is atomic:
// no prefix ends inside it.
type Span struct {
	Start, Len int
	Hash       Hash // of the content
}

// End is the position after the span's last token.
func (s Span) End() int { return s.Start + s.Len }

// Adapter is a LoRA adapter with the scale it is applied at.
type Adapter struct {
	Hash  Hash
	Scale float32
}

// Tokens is a prompt of bare token ids.
func Tokens(ids ...Token) Prompt { return Prompt{Tokens: ids} }

// Validate returns an error that wraps [ErrPrompt] and names the field at fault.
func (p *Prompt) Validate() error {
	if len(p.Tokens) > MaxTokens {
		return fmt.Errorf("%w: %d tokens, at most %d", ErrPrompt, len(p.Tokens), MaxTokens)
	}
	end := 0
	for i, s := range p.Spans {
		switch {
		case s.Len <= 0:
			return fmt.Errorf("%w: span %d has length %d", ErrPrompt, i, s.Len)
		case s.Start < end:
			return fmt.Errorf("%w: span %d starts at %d, before %d where the one before it ends", ErrPrompt, i, s.Start, end)
		case s.Len > len(p.Tokens) || s.Start > len(p.Tokens)-s.Len:
			return fmt.Errorf("%w: span %d covers [%d, %d), the prompt has %d tokens", ErrPrompt, i, s.Start, s.End(), len(p.Tokens))
		}
		end = s.End()
	}
	for i, a := range p.Adapters {
		if s := float64(a.Scale); math.IsNaN(s) || math.IsInf(s, 0) {
			return fmt.Errorf("%w: adapter %d has scale %g, expected a finite number", ErrPrompt, i, s)
		}
	}
	switch {
	case p.ScopeStart < 0:
		return fmt.Errorf("%w: scope starts at %d", ErrPrompt, p.ScopeStart)
	case p.ScopeStart > 0 && p.Scope == "":
		return fmt.Errorf("%w: scope starts at %d, and Scope is empty: all of the prompt would be shared", ErrPrompt, p.ScopeStart)
	case p.ScopeStart > len(p.Tokens): // characters taken for tokens
		return fmt.Errorf("%w: scope starts at token %d, the prompt has %d tokens: all of it would be shared", ErrPrompt, p.ScopeStart, len(p.Tokens))
	}
	if at := p.Clip(p.ScopeStart); at < p.ScopeStart {
		return fmt.Errorf("%w: scope starts at %d, inside the span that starts at %d: part of it would be shared", ErrPrompt, p.ScopeStart, at)
	}
	return nil
}

// Clip returns the largest position at most n that does not lie inside a span: where a prefix of p may end.
func (p *Prompt) Clip(n int) int {
	n = min(max(n, 0), len(p.Tokens))
	for _, s := range p.Spans {
		if s.Start < n && n < s.End() {
			return s.Start
		}
	}
	return n
}

// Prefix returns the first n tokens of p, which shares p's memory. n must not lie inside a span ([Prompt.Clip]). A prefix that ends before
// the scope begins is shared as a whole: its ScopeStart is n. Its keys are the first ones of p.
func (p *Prompt) Prefix(n int) Prompt {
	q := *p
	q.Tokens = p.Tokens[:n:n]
	if p.ScopeStart <= len(p.Tokens) { // else it is a mistake, and the prefix is refused as well
		q.ScopeStart = min(p.ScopeStart, n)
	}
	for i, s := range p.Spans {
		if s.End() > n {
			q.Spans = p.Spans[:i:i]
			break
		}
	}
	return q
}

// scoped reports whether the position belongs to p's own scope.
func (p *Prompt) scoped(pos int) bool { return p.Scope != "" && pos >= p.ScopeStart }

// Blocks is the number of blocks that p is cut into, a partial one at the end included. Cuts lie at multiples of blockTokens, and
// counting starts anew at ScopeStart, so that what scopes share ends exactly where they part.
func (p *Prompt) Blocks(blockTokens int) int {
	n := len(p.Tokens)
	if !p.scoped(n) {
		return ceilDiv(n, blockTokens)
	}
	return ceilDiv(p.ScopeStart, blockTokens) + ceilDiv(n-p.ScopeStart, blockTokens)
}

// Block returns the positions [start, end) of block i.
func (p *Prompt) Block(i, blockTokens int) (start, end int) {
	n := len(p.Tokens)
	if !p.scoped(n) {
		start = i * blockTokens
		return start, min(start+blockTokens, n)
	}
	shared := ceilDiv(p.ScopeStart, blockTokens)
	if i < shared {
		start = i * blockTokens
		return start, min(start+blockTokens, p.ScopeStart)
	}
	start = p.ScopeStart + (i-shared)*blockTokens
	return start, min(start+blockTokens, n)
}

// BlockCapacityEnd returns where block i would end if the prompt went on for ever: a block that ends before it is a partial one. Only a
// token of the scope says where that begins. A prompt without any may be the prefix of one whose scope begins further on.
func (p *Prompt) BlockCapacityEnd(i, blockTokens int) int {
	start, _ := p.Block(i, blockTokens)
	if start < p.ScopeStart && p.ScopeStart < len(p.Tokens) {
		return min(start+blockTokens, p.ScopeStart)
	}
	return start + blockTokens
}

// BlockAt returns the index of the block that holds position pos.
func (p *Prompt) BlockAt(pos, blockTokens int) int {
	if !p.scoped(pos) || !p.scoped(len(p.Tokens)) {
		return pos / blockTokens
	}
	return ceilDiv(p.ScopeStart, blockTokens) + (pos-p.ScopeStart)/blockTokens
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
