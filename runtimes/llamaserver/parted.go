package llamaserver

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/causes"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// Where prompts part. Of a request that reuses less than nine tenths of its prompt the front says at which token that parted from the nearest prompt that is
// stored, or lies in a slot. The token is looked up before the request is sent. In which part of the request it lies, and why, is found out
// after the answer: the server is asked for the text. What the other prompt has there is shown to nobody but who may open the control socket (explain.go).

// theirTokens are read of the other prompt behind the place where both part: some 400 characters, which tell a cause.
const theirTokens = 160

// partTime bounds how long the server is asked about the place.
const partTime = 2 * time.Second

// partings finds out where the prompts of a model part from others.
type partings struct {
	model     *db.Model
	api       *api.Client
	shelf     *shelf
	log       *slog.Logger
	ctx       context.Context // of the front: the server is asked after the client has its answer
	keyed     bool            // several people may use the server: none is told how old the prompts of others are
	explained *explanations   // where the texts go; nil: nowhere
}

// parting is where a prompt parted from another one.
type parting struct {
	of      *partings
	visit   *visit
	req     *request.Request
	prompt  kv.Prompt
	nearest slots.Nearest
	age     time.Duration // of the other prompt, when this one came; 0: not known

	once sync.Once
	said figures.Parted
}

// early reports whether so little of a prompt is reused that it matters where it parted from others.
func early(reused, asked int) bool { return asked >= trial.FewTokens && 10*reused < 9*asked }

// find returns where a prompt parts from the nearest one, if it is expected to reuse little; nil: it does not, or nobody knows. near is the nearest prompt
// of a slot. It is called before the request is sent, and looks at the index and at one or two records.
func (s *partings) find(ctx context.Context, expected int, near slots.Nearest, prompt kv.Prompt, v *visit, req *request.Request) *parting {
	store, err := s.shelf.store()
	if v.own || !early(expected, len(prompt.Tokens)) || err != nil { // of what nobody asked for nobody asks why
		return nil
	}
	stored, found, err := admin.FindNearest(ctx, store, s.model.Fingerprint(), prompt, theirTokens)
	if err != nil {
		s.log.Debug("looking for the nearest prompt", "err", err)
		return nil
	}
	if found && (stored.Common > near.Common || stored.Common == near.Common && (len(stored.Theirs) > 0 || len(near.Theirs) == 0)) {
		near = slots.Nearest{Common: stored.Common, Theirs: stored.Theirs, At: stored.Stored}
	}
	if len(near.Theirs) == 0 { // nothing is stored, or what is stored ends: nothing parts
		return nil
	}
	out := &parting{of: s, visit: v, req: req, prompt: prompt, nearest: near}
	if !near.At.IsZero() {
		out.age = max(0, time.Since(near.At))
	}
	return out
}

// strange reports whether two prompts have nothing in common to speak of: what a template writes first, say.
func (x *parting) strange() bool { return x.nearest.Common < kv.OpeningTokens }

// tell says what is known of the place before the server was asked.
func (x *parting) tell() figures.Parted {
	out := figures.Parted{Token: x.nearest.Common, Common: x.nearest.Common}
	if !x.strange() && !x.of.keyed {
		out.Age = x.age
	}
	return out
}

// tellAll is tell, with the part of the request and the cause. The server is asked once.
func (x *parting) tellAll() figures.Parted {
	x.once.Do(func() {
		x.said = x.tell()
		ctx, cancel := context.WithTimeout(x.of.ctx, partTime)
		defer cancel()
		p, err := x.place(ctx)
		if err == nil {
			x.said.Part, err = x.req.PartAt(ctx, x.of.api, p.text, p.at)
			x.said.Cause, x.said.Advice = x.cause(p)
		}
		if err != nil {
			x.of.log.Debug("looking at where a prompt parted from another", "err", err)
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
	x.of.log.Info(what, args...)
	return &p
}
