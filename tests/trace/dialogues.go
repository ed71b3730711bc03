package trace

import (
	"slices"
)

// A Text is a run of tokens that occur together nowhere else.
type Text struct {
	ID     uint64
	Tokens int
}

// A Turn is one request of a dialogue: its prompt is the facts, all messages and answers before, and a message.
type Turn struct {
	Dialogue int  // counts from 0; -1: a background job, which reads a text once
	Number   int  // of the dialogue's turns, from 1
	Facts    Text // system prompt, profile, examples: with them the prompt begins
	Rest     []Text
	Answer   Text
}

// Tokens is the length of the prompt.
func (t *Turn) Tokens() int {
	n := t.Facts.Tokens
	for _, x := range t.Rest {
		n += x.Tokens
	}
	return n
}

// Dialogues generates the turns of one person's dialogues with twelve assistants, each of which begins with facts of its own. A dialogue has
// up to longest turns, sits in a context of so many tokens, beyond which it begins anew with its facts, and is taken up again hours later six times in
// ten. In between, background jobs read each text once below facts of their own.
func Dialogues(seed uint64, sessions, longest, context int) []Turn {
	g := newGenerator(seed)
	assistants, jobs := g.texts(assistantTokens, 12), g.texts(systemTokens, 3)
	type dialogue struct {
		id, turns int
		facts     text
		rest      []Text
	}
	var open []*dialogue // last used first
	var out []Turn
	made := 0
	for range sessions {
		for range g.draw(jobsBetweenSessions) {
			doc := g.text(documentTokens)
			out = append(out, Turn{Dialogue: -1, Number: 1, Facts: jobs[g.skewed(len(jobs))].exported(), Rest: []Text{doc.exported()}, Answer: g.text(answerTokens).exported()})
		}
		var d *dialogue
		if len(open) > 0 && g.IntN(100) < 60 {
			i := g.skewed(min(len(open), 200))
			d = open[i]
			open = slices.Delete(open, i, i+1)
		} else {
			d = &dialogue{id: made, facts: assistants[g.skewed(len(assistants))]}
			made++
		}
		for range 1 + g.IntN(6) {
			if d.turns == longest {
				break
			}
			d.turns++
			turn := Turn{Dialogue: d.id, Number: d.turns, Facts: d.facts.exported(), Answer: g.text(answerTokens).exported()}
			message := g.message().exported()
			turn.Rest = append(slices.Clone(d.rest), message)
			if turn.Tokens()+turn.Answer.Tokens > context {
				turn.Rest = []Text{message}
			}
			out = append(out, turn)
			d.rest = append(slices.Clone(turn.Rest), turn.Answer)
		}
		if d.turns < longest {
			open = slices.Insert(open, 0, d)
		}
	}
	return out
}

func (t text) exported() Text { return Text{t.id, t.tokens} }
