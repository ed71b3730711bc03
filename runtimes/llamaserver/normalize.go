package llamaserver

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rules"
)

// normalizer applies the rules that were asked for, and counts what they changed. Safe for concurrent use.
type normalizer struct {
	rules rules.Rules
	found []*atomic.Int64 // by rule: requests
	log   *slog.Logger
}

// Normalized is what a rule has changed.
type Normalized struct {
	Rule     string // its name in X-Dormouse
	From     string // the set, or file, that it is of
	Action   string // "drop" or "move"
	Requests int64  // in which it found something
}

// CheckNormalize says what is wrong with [Options.Normalize].
func CheckNormalize(from []string) error {
	_, err := newNormalizer(from, slog.New(slog.DiscardHandler))
	return err
}

func newNormalizer(from []string, log *slog.Logger) (n normalizer, err error) {
	n.log = log
	for _, name := range from {
		rs, err := rules.Load(name)
		if err != nil {
			return n, err
		}
		log.Info("requests are normalized", "by", name, "rules", len(rs))
		n.rules = append(n.rules, rs...)
	}
	for range n.rules {
		n.found = append(n.found, &atomic.Int64{})
	}
	return n, nil
}

type normalizedKey struct{}

// apply gives a body as the rules have it, and the request with a note of what they changed.
func (n *normalizer) apply(e request.Endpoint, body []byte, r *http.Request) ([]byte, *http.Request) {
	out, applied := n.rules.Apply(e, body)
	if applied == nil {
		return body, r
	}
	var names []string
	for _, i := range applied {
		if rule := n.rules[i]; n.found[i].Add(1) == 1 {
			n.log.Info("a rule changes requests", "rule", rule.Name, "from", rule.Set, "action", rule.Action)
		}
		if name := n.rules[i].Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	n.log.Debug("a request was normalized", "endpoint", e, "rules", names, "bytes", len(body), "become", len(out))
	return out, r.WithContext(context.WithValue(r.Context(), normalizedKey{}, "; normalized="+strings.Join(names, ",")))
}

// normalizedBy is what the header says of the rules that changed a request.
func normalizedBy(ctx context.Context) string {
	said, _ := ctx.Value(normalizedKey{}).(string)
	return said
}

func (n *normalizer) counts() (out []Normalized) {
	for i, r := range n.rules {
		out = append(out, Normalized{r.Name, r.Set, string(r.Action), n.found[i].Load()})
	}
	return out
}
