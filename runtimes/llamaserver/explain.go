package llamaserver

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dormousekv/dormouse/kv"
)

// Explained is a request whose prompt parted from another one, with the text on both sides of the place: for who uses the machine on which the front
// runs. It is kept in memory, if Options.Explain says so, and gets into no file, log or answer.
type Explained struct {
	Ended    time.Time
	Model    string
	Endpoint string // the path
	Client   string // what sent it, by its headers; empty: not known
	Token    int    // position of the first token that differs
	Asked    int    // tokens of the prompt
	Part     string // of the request in which that is
	Cause    string // a code; empty: not known
	Advice   string
	Age      time.Duration // of the other prompt; 0: not known
	Before   string        // the text that both have in front of the place, up to 40 characters
	Mine     string        // and what this prompt has behind it
	Theirs   string        // and the other one
}

const (
	explainedRequests = 20
	explainedText     = 40 // characters
)

// ErrNotExplained is returned by [Front.Explain] of a front that keeps no texts.
var ErrNotExplained = errors.New("texts are kept only if dormouse serve is started with --explain: they stay in its memory, the last 20 of them")

// explanations are the last requests that parted.
type explanations struct {
	mu   sync.Mutex
	list []Explained // the newest last
}

func (e *explanations) add(x Explained) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == explainedRequests {
		copy(e.list, e.list[1:])
		e.list = e.list[:len(e.list)-1]
	}
	e.list = append(e.list, x)
}

func (e *explanations) empty() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = nil
}

// all returns the last requests that parted, the newest first.
func (e *explanations) all() []Explained {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := []Explained{}
	for i := len(e.list) - 1; i >= 0; i-- {
		out = append(out, e.list[i])
	}
	return out
}

// place is the text of a prompt, and where in it another one goes on otherwise.
type place struct {
	text   string
	at     int
	theirs string // the other one's text from there on
}

// place asks the server for the texts.
func (x *parting) place(ctx context.Context) (p place, err error) {
	const around = 8 // tokens in front: a character may have several tokens, of which the last differs
	tokens := x.prompt.Tokens
	if p.text, err = x.of.api.Detokenize(ctx, tokens); err != nil {
		return p, err
	}
	before, err := x.of.api.Detokenize(ctx, tokens[:x.nearest.Common])
	if err != nil {
		return p, err
	}
	near := tokens[max(0, x.nearest.Common-around):x.nearest.Common]
	lead, err := x.of.api.Detokenize(ctx, near)
	if err != nil {
		return p, err
	}
	theirs, err := x.of.api.Detokenize(ctx, append(append([]kv.Token{}, near...), x.nearest.Theirs...))
	if err != nil {
		return p, err
	}
	before, lead = withoutCut(before), withoutCut(lead)
	theirs, ok := strings.CutPrefix(theirs, lead)
	if !ok || !strings.HasPrefix(p.text, before) {
		return place{}, errors.New("the server makes other text of the beginning of a prompt than of all of it")
	}
	p.at, p.theirs = len(before), withoutCut(theirs)
	// Tokens that differ may begin with the same characters.
	n := 0
	for mine := p.text[p.at:]; n < min(len(mine), len(p.theirs)) && mine[n] == p.theirs[n]; n++ {
	}
	for n > 0 && p.at+n < len(p.text) && !utf8.RuneStart(p.text[p.at+n]) {
		n--
	}
	if n < len(p.theirs) && p.at+n < len(p.text) {
		p.at, p.theirs = p.at+n, p.theirs[n:]
	}
	return p, nil
}

// withoutCut is a text without the character at its end of which tokens have only a part.
func withoutCut(t string) string { return strings.TrimRight(t, "\ufffd") }

// explain keeps what both prompts have around the place.
func (x *parting) explain(p place) {
	if x.of.explained == nil {
		return
	}
	e := Explained{
		Ended: time.Now(), Model: x.of.model.Descriptor().Name, Endpoint: x.visit.endpoint, Client: x.visit.client, Token: x.nearest.Common, Asked: len(x.prompt.Tokens), Part: x.said.Part,
		Cause: x.said.Cause, Advice: x.said.Advice, Before: lastOf(p.text[:p.at], explainedText), Mine: firstOf(p.text[p.at:], explainedText), Theirs: firstOf(p.theirs, explainedText), Age: x.age,
	}
	x.of.explained.add(e)
}

// firstOf are the first n characters of a text.
func firstOf(t string, n int) string {
	for i := range t {
		if n--; n < 0 {
			return t[:i]
		}
	}
	return t
}

// lastOf are the last n characters of a text.
func lastOf(t string, n int) string {
	at := len(t)
	for range n {
		_, size := utf8.DecodeLastRuneInString(t[:at])
		at -= size
	}
	return t[at:]
}
