package llamaserver

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/causes"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// Where prompts part. Of a request that reuses less than nine tenths of its prompt the front says at which token that parted from the nearest prompt that is
// stored, or lies in a slot. The token is looked up before the request is sent. In which part of the request it lies, and why, is found out
// after the answer: the server is asked for the text. What the other prompt has there is shown to nobody but who may open the control socket (explain.go).

// theirTokens are read of the other prompt behind the place where both part: some 400 characters, which tell a cause.
const theirTokens = 160

// partTime bounds how long the server is asked about the place.
const partTime = 2 * time.Second

// nearest is what is known of the prompt that has most tokens in common with another one.
type nearest struct {
	common int        // leading tokens that both have: then comes the first that differs
	theirs []kv.Token // of the other prompt from there on; none: one of both ends there
	at     time.Time  // when the other one was stored, or last lay in its slot; zero: not known
}

// parting is where a prompt parted from another one.
type parting struct {
	s      *served
	visit  *visit
	req    *request.Request
	prompt kv.Prompt
	nearest
	age time.Duration // of the other prompt, when this one came; 0: not known

	once sync.Once
	said figures.Parted
}

// open is how many leading tokens of a prompt everybody may reuse.
func open(p kv.Prompt) int {
	if p.Scope == "" {
		return len(p.Tokens)
	}
	return min(p.ScopeStart, len(p.Tokens))
}

// nearestSlot is the slot's prompt that has most in common with another one. Of what belongs to another API key it sees what all share.
func (s *served) nearestSlot(prompt kv.Prompt) (best nearest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.slots {
		theirs := sl.prompt.Tokens
		if sl.prompt.Scope != prompt.Scope {
			theirs = theirs[:min(open(sl.prompt), open(prompt))]
		}
		n := alike(theirs, prompt.Tokens)
		if len(theirs) == 0 || !slices.Equal(sl.prompt.Adapters, prompt.Adapters) || n < best.common || n == best.common && best.theirs != nil {
			continue
		}
		best.common, best.theirs, best.at = n, nil, sl.ended
		if n < min(len(theirs), len(prompt.Tokens)) {
			best.theirs = slices.Clone(theirs[n:min(n+theirTokens, len(theirs))])
		}
	}
	return best
}

// early reports whether so little of a prompt is reused that it matters where it parted from others.
func early(reused, asked int) bool { return asked >= trial.FewTokens && 10*reused < 9*asked }

// parted is where a prompt parts from the nearest one, if it reuses little; nil: it does not, or nobody knows. It is called before the request is
// sent, and looks at the index and at one or two records.
func (s *served) parted(ctx context.Context, m *db.Model, p *plan, prompt kv.Prompt, r *http.Request, req *request.Request) *parting {
	expected, _ := p.reused(answered{})
	store, err := s.front.store()
	v := visitOf(r)
	if v.own || !early(expected, len(prompt.Tokens)) || err != nil { // of what nobody asked for nobody asks why
		return nil
	}
	near, found, err := admin.FindNearest(ctx, store, m.Fingerprint(), prompt, theirTokens)
	if err != nil {
		s.log.Debug("looking for the nearest prompt", "err", err)
		return nil
	}
	x := p.near
	if found && (near.Common > x.common || near.Common == x.common && (len(near.Theirs) > 0 || len(x.theirs) == 0)) {
		x.common, x.theirs, x.at = near.Common, near.Theirs, near.Stored
	}
	if len(x.theirs) == 0 { // nothing is stored, or what is stored ends: nothing parts
		return nil
	}
	out := &parting{s: s, visit: v, req: req, prompt: prompt, nearest: x}
	if !x.at.IsZero() {
		out.age = max(0, time.Since(x.at))
	}
	return out
}

// strange reports whether two prompts have nothing in common to speak of: what a template writes first, say.
func (x *nearest) strange() bool { return x.common < kv.OpeningTokens }

// tell says what is known of the place before the server was asked.
func (x *parting) tell() figures.Parted {
	out := figures.Parted{Token: x.common, Common: x.common}
	if !x.strange() && !x.s.front.keyed() {
		out.Age = x.age
	}
	return out
}

// tellAll is tell, with the part of the request and the cause. The server is asked once.
func (x *parting) tellAll() figures.Parted {
	x.once.Do(func() {
		x.said = x.tell()
		ctx, cancel := context.WithTimeout(x.s.front.ctx, partTime)
		defer cancel()
		p, err := x.place(ctx)
		if err == nil {
			x.said.Part, err = x.req.PartAt(ctx, x.s.api, p.text, p.at)
			x.said.Cause, x.said.Advice = x.cause(p)
		}
		if err != nil {
			x.s.log.Debug("looking at where a prompt parted from another", "err", err)
		}
		x.explain(p)
	})
	return x.said
}

// cause is why both prompts parted, if the cause is a known one, and what helps.
func (x *parting) cause(p place) (code, advice string) {
	const text = 400 // characters
	c, _ := causes.Of(causes.Split{
		Endpoint: x.visit.endpoint, Client: x.visit.client, Part: x.said.Part,
		Before: lastOf(p.text[:p.at], text), Mine: firstOf(p.text[p.at:], text), Theirs: firstOf(p.theirs, text),
	})
	return c.Code, c.Advice
}

// header is what X-Dormouse says of the place: once the answer is there, the part of the request, too.
func (x *parting) header(known bool) string {
	p := x.tell()
	if known {
		p = x.tellAll()
	}
	out := fmt.Sprintf("; parted=%d", p.Token)
	if x.strange() {
		out = "; parted=nothing_in_common"
	}
	if p.Part != "" {
		out += "; part=" + strings.ReplaceAll(p.Part, " ", "_")
	}
	if p.Age > 0 {
		out += fmt.Sprintf("; age=%ds", int(p.Age.Seconds()))
	}
	return out
}

// partedEarly is where a prompt parted, if the server did reuse little of it.
func (p *plan) partedEarly(a answered) *parting {
	if p.parted == nil {
		return nil
	}
	if n, _ := p.reused(a); !early(n, len(p.parted.prompt.Tokens)) {
		return nil
	}
	return p.parted
}

// figures are what is counted of the place, which is logged, too: never a text.
func (x *parting) figures() *figures.Parted {
	if x == nil {
		return nil
	}
	p := x.tellAll()
	args := []any{"endpoint", x.visit.endpoint, "client", cmp.Or(x.visit.client, "unknown"), "token", p.Token, "of", len(x.prompt.Tokens), "part", cmp.Or(p.Part, "unknown")}
	if p.Age > 0 {
		args = append(args, "age", p.Age.Round(time.Second))
	}
	if p.Cause != "" {
		args = append(args, "cause", p.Cause, "advice", p.Advice)
	}
	what := "a prompt parted from the nearest one that is stored"
	if x.strange() {
		what = "a prompt has nothing in common with those that are stored"
	}
	x.s.log.Info(what, args...)
	return &p
}

// keyed reports whether several people may use the server, each with an API key: none is told how old the prompts of others are.
func (f *Front) keyed() bool { return f.args.APIKey != "" || f.o.APIKey != "" || f.o.ScopeByKey }
