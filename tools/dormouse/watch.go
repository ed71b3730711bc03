package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// watchEvery is how often the front is asked.
const watchEvery = time.Second

// watching is dormouse doctor --watch: it follows the requests of a front that runs, and says by name what a client should set.
type watching struct {
	store  string
	within time.Duration // 0: until it is interrupted
	asJSON bool
}

func (w watching) run(ctx context.Context, out, errs io.Writer) error {
	dir, err := frontOf(ctx, w.store)
	if err != nil {
		return err
	}
	var s llamaserver.Status
	if err := ask(ctx, dir, "GET", "/status", nil, &s); err != nil {
		return errWork{err}
	}
	if w.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.within)
		defer cancel()
	}
	say := func(all []Said) {
		for _, x := range all {
			if w.asJSON {
				json.NewEncoder(out).Encode(x)
			} else {
				fmt.Fprintln(out, x.Text)
			}
		}
	}
	fmt.Fprintf(errs, "watching the requests that dormouse serve gets (its store is %s): use your agents now. Ctrl-C ends\n", dir)
	watched := newWatched(s.Recent)
	lost := false
	for tick := time.NewTicker(watchEvery); ; {
		select {
		case <-ctx.Done():
			say(watched.few())
			return nil
		case <-tick.C:
		}
		var s llamaserver.Status
		if err := ask(ctx, dir, "GET", "/status", nil, &s); err == nil {
			lost = false
			say(watched.news(s.Recent))
		} else if ctx.Err() == nil && !lost {
			lost = true // it may be started again
			if !errors.Is(err, errNoFront) {
				return errWork{err}
			}
			fmt.Fprintln(errs, "dormouse serve does not answer any more: waiting for it")
		}
	}
}

// Kinds of what is said of a client.
const (
	saidCause  = "cause"  // why its prompts part, and what to set
	saidParted = "parted" // where they part, and nobody knows why
	saidPassed = "passed" // its requests pass the front by
	saidWell   = "well"   // nothing is to be set
	saidFew    = "few"    // it sent too few requests
)

// Said is a line of dormouse doctor --watch --json.
type Said struct {
	Time     time.Time
	Client   string // a code: "claude-code"; empty: not known
	Kind     string // "cause", "parted", "passed", "well", "few"
	Requests int    // of the client, so far
	Part     string `json:",omitempty"` // of the request in which prompts part
	Token    int    `json:",omitempty"` // at which they do
	Asked    int    `json:",omitempty"` // tokens of the prompts that this is said of
	Reused   int    `json:",omitempty"` // of these, not computed
	Cause    string `json:",omitempty"` // a code
	Advice   string `json:",omitempty"`
	Text     string // all of it, for people
}

// enough is after how many requests something is said of a client.
const enough = 3

// watched is what was seen since the watch began.
type watched struct {
	last    time.Time // the newest request that was looked at
	clients map[string]*watchedClient
}

type watchedClient struct {
	requests int
	recent   []figures.Request // the last ones, the newest last
	waiting  []Said            // what is said once there are enough
	said     map[string]bool   // by kind and what
	doubts   map[string]int    // how often was seen what is said only of the second time
	well     bool              // that was said last
}

// newWatched begins behind the requests that there were before.
func newWatched(recent []figures.Request) *watched {
	w := &watched{clients: map[string]*watchedClient{}}
	for _, q := range recent {
		w.last = later(w.last, q.Ended)
	}
	return w
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// news is what is to be said now. recent are the front's last requests, the newest first.
func (w *watched) news(recent []figures.Request) (out []Said) {
	last := w.last
	for _, q := range slices.Backward(recent) {
		if !q.Ended.After(last) {
			continue
		}
		w.last = later(w.last, q.Ended)
		c := w.clients[q.Client]
		if c == nil {
			c = &watchedClient{said: map[string]bool{}, doubts: map[string]int{}}
			w.clients[q.Client] = c
		}
		out = append(out, c.add(q)...)
	}
	return out
}

// few says of which clients there were too few requests.
func (w *watched) few() (out []Said) {
	if len(w.clients) == 0 {
		return []Said{{Time: time.Now(), Kind: saidFew, Text: "no request came"}}
	}
	for name, c := range w.clients {
		if c.requests < enough {
			x := c.about(figures.Request{Ended: time.Now(), Client: name}, saidFew)
			x.Text = fmt.Sprintf("%s: %d of the %d requests that it takes to say something", program(name), c.requests, enough)
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b Said) int { return cmp.Compare(a.Client, b.Client) })
	return out
}

// about begins what is said of a request.
func (c *watchedClient) about(q figures.Request, kind string) Said {
	return Said{Time: q.Ended, Client: q.Client, Kind: kind, Requests: c.requests, Asked: q.Asked, Reused: q.Reused}
}

// add takes in a request, and gives what is to be said of its client.
func (c *watchedClient) add(q figures.Request) (out []Said) {
	if q.Cancelled && !q.Known() { // it says nothing of what is kept. Codex leaves before the end of an answer that it has read
		return nil
	}
	c.requests++
	if c.recent = append(c.recent, q); len(c.recent) > enough {
		c.recent = c.recent[1:]
	}
	if p := q.Parted; p != nil {
		c.parted(q, p)
	}
	if c.requests < enough {
		return nil
	}
	c.passed(q)
	c.goesWell(q)
	out, c.waiting = c.waiting, nil
	for i := range out {
		out[i].Requests = c.requests
	}
	return out
}

// once has something said, unless it was.
func (c *watchedClient) once(what string, x Said) {
	if !c.said[x.Kind+what] {
		c.said[x.Kind+what] = true
		c.waiting = append(c.waiting, x)
	}
}

func (c *watchedClient) parted(q figures.Request, p *figures.Parted) {
	// Once, something may have been set, or the first prompt of a program come, which has nothing in common with those of others.
	if p.Cause == "" || p.Apart() {
		what := p.Cause + " in " + p.Part
		if c.doubts[what]++; c.doubts[what] < 2 {
			return
		}
	}
	x := c.about(q, saidCause)
	x.Part, x.Token, x.Cause, x.Advice = p.Part, p.Token, p.Cause, p.Advice
	if p.Cause != "" {
		x.Text = fmt.Sprintf("%s: %s (%s)", program(q.Client), p.Advice, p.Says(q.Asked))
		c.once(p.Cause+p.Advice, x)
	} else if q.Short() {
		x.Kind = saidParted
		x.Text = fmt.Sprintf("%s: %s of %s tokens were reused: it %s; why is not known: dormouse explain shows the text on both sides, of a serve that was started with --explain",
			program(q.Client), figures.Comma(q.Reused), figures.Comma(q.Asked), p.Says(q.Asked))
		c.once(p.Part, x)
	}
}

// passed says that all of the last requests went by the front, for one reason.
func (c *watchedClient) passed(q figures.Request) {
	if slices.ContainsFunc(c.recent, func(r figures.Request) bool { return r.Outcome != figures.Pass || r.Reason != q.Reason }) {
		return
	}
	x := c.about(q, saidPassed)
	x.Cause = q.Reason
	x.Text = fmt.Sprintf("%s: nothing is kept of its requests at %s: %s", program(q.Client), q.Endpoint, figures.Words(q.Reason))
	c.once(q.Reason, x)
}

// goesWell says that the last requests were reused, when that begins to be so.
func (c *watchedClient) goesWell(q figures.Request) {
	sum := figures.Request{Client: q.Client, Ended: q.Ended}
	for _, r := range c.recent {
		if !r.Known() {
			c.well = false
			return
		}
		sum.Asked, sum.Reused, sum.Computed = sum.Asked+r.Asked, sum.Reused+r.Reused, sum.Computed+r.Computed
	}
	if was := c.well; sum.Short() || was {
		c.well = was && !sum.Short()
		return
	}
	c.well = true
	x := c.about(sum, saidWell)
	x.Text = fmt.Sprintf("%s: %s of the %s tokens of its last %d requests were not computed; nothing is to be set", program(q.Client),
		figures.Share(int64(sum.Reused), int64(sum.Asked)), figures.Comma(sum.Asked), enough)
	c.waiting = append(c.waiting, x)
}

// program is a client's name as people know it.
func program(client string) string {
	switch client {
	case "":
		return "a program without a known name"
	case "claude-code":
		return "Claude Code"
	case "codex":
		return "Codex"
	case "open-webui":
		return "Open WebUI"
	case "langchain":
		return "LangChain"
	case "openai-python", "openai-node", "anthropic-python", "anthropic-node":
		return "a program that uses the package " + client
	}
	return client
}
