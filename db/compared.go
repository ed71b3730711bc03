package db

import (
	"slices"
	"sync"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// comparedPrompts is how many prompts compared remembers: conversations that are put a block at a time, in turns.
const comparedPrompts = 4

// compared remembers which records puts have seen to hold the tokens of their prompts, so that a prompt that is put a
// block at a time does not have every earlier block read each time. A record does not change, and no other takes its place
// in its file: the index naming the same place is enough. 4 bytes a token and 32 a block.
type compared struct {
	mu   sync.Mutex
	last [comparedPrompts]*comparedPrompt
	next int
}

// comparedPrompt is a prompt and where its blocks lie; a zero place was not compared. It does not change.
type comparedPrompt struct {
	model  kv.Fingerprint
	prompt kv.Prompt
	at     []index.Loc
}

// best returns the remembered prompt that shares the most leading blocks with p, where those lie, and its slot; -1 for none.
func (c *compared) best(model kv.Fingerprint, p *kv.Prompt, blockTokens int) (at []index.Loc, slot int) {
	slot = -1
	for i, x := range c.last {
		if x == nil || x.model != model {
			continue
		}
		if n := x.shared(p, blockTokens); n > len(at) {
			at, slot = x.at[:n], i
		}
	}
	return at, slot
}

// shared returns how many leading blocks of p are x's, too: of the same tokens, spans, adapters and scope.
func (x *comparedPrompt) shared(p *kv.Prompt, blockTokens int) int {
	q := &x.prompt
	if q.Scope != p.Scope || q.ScopeStart != p.ScopeStart || !slices.Equal(q.Adapters, p.Adapters) {
		return 0
	}
	end := min(len(q.Tokens), len(p.Tokens))
	for i, t := range q.Tokens[:end] {
		if t != p.Tokens[i] {
			end = i
			break
		}
	}
	for i := range max(len(q.Spans), len(p.Spans)) {
		if i < len(q.Spans) && i < len(p.Spans) && q.Spans[i] == p.Spans[i] {
			continue
		}
		for _, spans := range [][]kv.Span{q.Spans, p.Spans} {
			if i < len(spans) {
				end = min(end, spans[i].Start)
			}
		}
		break
	}
	n := 0
	for n < len(x.at) && n < p.Blocks(blockTokens) {
		_, is := p.Block(n, blockTokens)
		if _, was := q.Block(n, blockTokens); is != was || is > end {
			break
		}
		n++
	}
	return n
}

// of returns where the leading blocks of p lay when they were compared.
func (c *compared) of(model kv.Fingerprint, p *kv.Prompt, blockTokens int) []index.Loc {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, _ := c.best(model, p, blockTokens)
	return at
}

// keep remembers where the leading blocks of p lie. The prompt is copied; at is kept.
func (c *compared) keep(model kv.Fingerprint, p *kv.Prompt, blockTokens int, at []index.Loc) {
	if len(at) == 0 {
		return
	}
	_, end := p.Block(len(at)-1, blockTokens)
	q := *p
	q.Tokens, q.Spans, q.Adapters = slices.Clone(q.Tokens[:end]), slices.Clone(q.Spans), slices.Clone(q.Adapters)
	x := &comparedPrompt{model: model, prompt: q, at: at}
	c.mu.Lock()
	defer c.mu.Unlock()
	had, slot := c.best(model, p, blockTokens)
	if slot < 0 || len(had) < len(c.last[slot].at) { // it goes on differently
		slot, c.next = c.next, (c.next+1)%comparedPrompts
	}
	c.last[slot] = x
}

// drop forgets everything.
func (c *compared) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = [comparedPrompts]*comparedPrompt{}
}
