package trace

import (
	"math/rand/v2"
	"slices"
	"time"
)

// GeneratedBlockTokens is the block size of the requests that [Chat] and [Phone] return: the database's default.
const GeneratedBlockTokens = 64

// Chat generates the traffic of a chat service: many users at once, each in a conversation of a few turns below one of
// five system prompts. A turn sends the whole conversation again. Some messages carry a pasted document, some turns are
// asked again word for word, some are edited, which forks the conversation. Half of the conversations end after the
// first turn.
func Chat(seed uint64, conversations int) []Request {
	g := newGenerator(seed)
	systems := g.texts(systemTokens, 5)
	type turn struct {
		at   time.Duration
		chat *conversation
	}
	var pending []turn // ordered by time
	schedule := func(at time.Duration, c *conversation) {
		i, _ := slices.BinarySearchFunc(pending, at, func(t turn, at time.Duration) int {
			if t.at <= at {
				return -1
			}
			return 1
		})
		pending = slices.Insert(pending, i, turn{at, c})
	}
	start := time.Duration(0)
	for range conversations {
		start += g.draw(betweenConversationsMillis) * time.Millisecond
		schedule(start, &conversation{texts: []text{systems[g.skewed(len(systems))]}, more: g.IntN(80)})
	}
	for len(pending) > 0 {
		now, c := pending[0].at, pending[0].chat
		pending = pending[1:]
		switch event := g.IntN(100); {
		case event < 4 && c.turns > 0: // asked again word for word: the answer was never appended
			c.texts = c.texts[:len(c.texts)-1]
		case event < 8 && len(c.texts) > 4: // an earlier message is edited
			c.texts = c.texts[:1+2*g.IntN(len(c.texts)/2)]
			fallthrough
		default:
			c.texts = append(c.texts, g.message())
		}
		c.turns++
		answer := g.text(answerTokens)
		g.send(now, c.texts, answer.tokens)
		c.texts = append(c.texts, answer)
		if g.IntN(100) < c.more && c.turns < 60 {
			schedule(now+g.draw(thinkMillis)*time.Millisecond, c)
		} else {
			c.more = 0
		}
	}
	return g.requests
}

// Phone generates the traffic of one person's device: a dozen assistants with long system prompts, conversations that
// are taken up again hours later, and background jobs that read each text once.
func Phone(seed uint64, sessions int) []Request {
	g := newGenerator(seed)
	assistants := g.texts(assistantTokens, 12)
	jobs := g.texts(systemTokens, 3)
	var conversations []*conversation // last used first
	now := time.Duration(0)
	for range sessions {
		now += g.draw(betweenSessionsMillis) * time.Millisecond
		for range g.draw(jobsBetweenSessions) {
			now += 2 * time.Second
			g.send(now, []text{jobs[g.skewed(len(jobs))], g.text(documentTokens)}, 60)
		}
		var c *conversation
		if len(conversations) > 0 && g.IntN(100) < 60 {
			i := g.skewed(min(len(conversations), 200))
			c = conversations[i]
			conversations = slices.Delete(conversations, i, i+1)
		} else {
			c = &conversation{texts: []text{assistants[g.skewed(len(assistants))]}}
		}
		conversations = slices.Insert(conversations, 0, c)
		for range 1 + g.IntN(6) {
			if c.tokens() > 16384 { // the context is full: the conversation starts over
				c.texts = c.texts[:1]
			}
			c.texts = append(c.texts, g.message())
			answer := g.text(answerTokens)
			g.send(now, c.texts, answer.tokens)
			c.texts = append(c.texts, answer)
			now += g.draw(thinkMillis) * time.Millisecond
		}
	}
	return g.requests
}

// A text is a run of tokens that occur together nowhere else.
type text struct {
	id     uint64
	tokens int
}

type conversation struct {
	texts []text
	turns int
	more  int // chance in percent of yet another turn
}

func (c *conversation) tokens() int {
	n := 0
	for _, t := range c.texts {
		n += t.tokens
	}
	return n
}

// Distributions, as the values at 0, 10, … 100 % of the draws, with straight lines between them. Whole numbers, because
// floating-point functions differ in their last bit from one processor to the next.
type quantiles [11]int64

var (
	systemTokens    = quantiles{90, 150, 220, 300, 400, 500, 650, 850, 1100, 1500, 2400}
	assistantTokens = quantiles{300, 400, 500, 650, 800, 1000, 1300, 1700, 2200, 3000, 4000}
	messageTokens   = quantiles{4, 10, 15, 22, 32, 45, 65, 95, 150, 280, 900}
	documentTokens  = quantiles{200, 500, 800, 1100, 1500, 2000, 2600, 3400, 4600, 6500, 12000}
	answerTokens    = quantiles{5, 40, 90, 140, 190, 250, 320, 400, 510, 700, 1500}

	thinkMillis                = quantiles{2e3, 8e3, 14e3, 22e3, 32e3, 45e3, 65e3, 95e3, 150e3, 300e3, 2400e3}
	betweenConversationsMillis = quantiles{0, 60, 130, 210, 300, 410, 540, 710, 950, 1350, 4000}
	betweenSessionsMillis      = quantiles{20e3, 60e3, 120e3, 240e3, 480e3, 900e3, 1500e3, 2400e3, 4000e3, 9000e3, 30000e3}
	jobsBetweenSessions        = quantiles{0, 0, 0, 1, 1, 2, 3, 4, 6, 9, 25}
)

type generator struct {
	*rand.Rand
	lastText uint64
	ids      map[blockContent]uint32
	requests []Request
}

// A blockContent is all that makes a block what it is: what comes before, and what is in it.
type blockContent struct {
	parent int64 // -1: the first block
	hash   uint64
	tokens int
}

func newGenerator(seed uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 0x646f726d6f757365)), ids: map[blockContent]uint32{}}
}

func (g *generator) draw(q quantiles) time.Duration {
	at := g.Int64N(10_000)
	i, rest := at/1000, at%1000
	return time.Duration(q[i] + (q[i+1]-q[i])*rest/1000)
}

// skewed draws from 0 … n-1; the first half is three times as likely as the second, and so on within each half.
func (g *generator) skewed(n int) int {
	from := 0
	for n > 1 {
		half := (n + 1) / 2
		if g.IntN(4) < 3 {
			n = half
		} else {
			from, n = from+half, n-half
		}
	}
	return from
}

func (g *generator) text(length quantiles) text {
	g.lastText++
	return text{g.lastText, int(g.draw(length))}
}

func (g *generator) texts(length quantiles, n int) []text {
	out := make([]text, n)
	for i := range out {
		out[i] = g.text(length)
	}
	return out
}

func (g *generator) message() text {
	if g.IntN(100) < 12 {
		return g.text(documentTokens)
	}
	return g.text(messageTokens)
}

// send appends the request that evaluates texts, cut into blocks.
func (g *generator) send(now time.Duration, texts []text, outputTokens int) {
	r := Request{Arrived: now, OutputTokens: outputTokens}
	block := blockContent{parent: -1}
	finish := func() {
		id, known := g.ids[block]
		if !known {
			id = uint32(len(g.ids))
			g.ids[block] = id
		}
		r.Blocks = append(r.Blocks, id)
		r.PromptTokens += block.tokens
		block = blockContent{parent: int64(id)}
	}
	for _, t := range texts {
		for from := 0; from < t.tokens; {
			n := min(t.tokens-from, GeneratedBlockTokens-block.tokens)
			block.hash = mix(mix(block.hash^t.id) ^ uint64(from)<<20 ^ uint64(n))
			block.tokens += n
			from += n
			if block.tokens == GeneratedBlockTokens {
				finish()
			}
		}
	}
	if block.tokens > 0 {
		finish()
	}
	g.requests = append(g.requests, r)
}

// mix spreads every bit of x over all bits of the result (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
