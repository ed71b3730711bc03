package llamaserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// Keep names the prefix of a request: all that comes before the last message of the user.
type Keep struct {
	Name     string
	Endpoint string // the path to which a client sends it; empty: it is guessed
	Body     []byte // as a client sends it
	Key      string // the API key with which, where they are kept apart (Options.ScopeByKey)
	Pin      bool   // no eviction takes it
}

// Kept is a prefix with a name.
type Kept struct {
	Name   string
	Model  string `json:",omitempty"`
	Tokens int    `json:",omitempty"`
	Pinned bool
	// State in words: "pinned", "stored", "evicted", "of a model that does not run here now", or why it is not computed yet.
	State string
	Set   time.Time `json:",omitzero"`
}

// refPrefix begins the names of the refs that are pins.
const refPrefix = "pin/"

// keptMeta is what a ref says of itself.
type keptMeta struct {
	Model string `json:"model"`
}

const maxPinName = 100

// read checks what is to be kept, and reads the request.
func (f *Front) read(k *Keep) (*request.Request, error) {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	if k.Name == "" || len(k.Name) > maxPinName || !utf8.ValidString(k.Name) || strings.ContainsFunc(k.Name, odd) {
		return nil, fmt.Errorf("name %q: expected 1 to %d bytes that can be printed", k.Name, maxPinName)
	}
	e := request.Guess(k.Body)
	if k.Endpoint != "" {
		e = request.EndpointOf(k.Endpoint, f.args.Prefix)
		if e == request.None {
			e = request.EndpointOf(k.Endpoint, "")
		}
	}
	switch {
	case e == request.None && k.Endpoint != "":
		return nil, fmt.Errorf("endpoint %q computes no prompt: expected /v1/chat/completions, /v1/messages, /v1/responses or /completion", k.Endpoint)
	case e == request.None:
		return nil, errors.New("it has none of messages, input and prompt: it is no request body, or say the endpoint")
	}
	body, _ := f.rules.rules.Apply(e, k.Body)
	req, err := request.Parse(e, body)
	if err != nil {
		return nil, inWords(err)
	}
	return req, nil
}

// inWords is an error with the words for its reason.
func inWords(err error) error {
	var p request.Pass
	if errors.As(err, &p) {
		return fmt.Errorf("%s (%w)", figures.Words(string(p)), err)
	}
	return err
}

// prefix is the prompt that is to be kept, of the model that it is of.
func (f *Front) prefix(ctx context.Context, k *Keep, req *request.Request) (s *served, p kv.Prompt, err error) {
	if s = f.servedFor(f.modelOf(req)); !s.hold.patient(ctx) {
		return s, p, ctx.Err()
	}
	known, err := s.ready()
	if err != nil {
		return s, p, err
	}
	if p.Tokens, err = req.Prefix(ctx, s.api); err != nil {
		return s, p, err
	}
	if len(p.Tokens) >= known.room {
		return s, p, fmt.Errorf("it has %d tokens: a slot has room for %d", len(p.Tokens), known.room)
	}
	if len(p.Tokens) < trial.FewTokens {
		return s, p, fmt.Errorf("it has %d tokens: expected at least %d, since fewer are quicker computed than found", len(p.Tokens), trial.FewTokens)
	}
	p, err = known.prompts.completed(ctx, p, req, k.Key)
	return s, p, err
}

// keepAs gives a stored prefix its name.
func (s *served) keepAs(ctx context.Context, k *Keep, p kv.Prompt) (Kept, error) {
	out := Kept{Name: k.Name, Model: s.named(), Tokens: len(p.Tokens), Pinned: k.Pin, State: stateWord(k.Pin), Set: time.Now()}
	known, err := s.ready()
	if err != nil {
		return out, err
	}
	if err := known.saver.saveNow(ctx); err != nil {
		return out, err
	}
	meta, err := json.Marshal(keptMeta{out.Model})
	if err != nil {
		return out, err
	}
	if len(meta) > db.MaxRefMeta {
		meta = nil
	}
	if err = known.model.SetRef(ctx, refPrefix+k.Name, p, db.RefOptions{Pinned: k.Pin, Meta: meta}); err == nil {
		s.shared.log.Info("a prefix is kept by name", "name", k.Name, "model", out.Model, "tokens", out.Tokens, "pinned", k.Pin)
	}
	return out, err
}

func stateWord(pinned bool) string {
	if pinned {
		return "pinned"
	}
	return "stored"
}

// Pin keeps the prefix of a request through evictions, if all of it is stored.
func (f *Front) Pin(ctx context.Context, k Keep) (Kept, error) {
	k.Pin = true
	req, err := f.read(&k)
	if err != nil {
		return Kept{}, err
	}
	s, p, err := f.prefix(ctx, &k, req)
	if err != nil {
		return Kept{}, inWords(err)
	}
	out, err := s.keepAs(ctx, &k, p)
	var missing *db.NotStoredError
	if errors.As(err, &missing) {
		return out, fmt.Errorf("%d of its %d tokens are stored, so nothing was pinned: have it computed by a request of its kind, or by dormouse warm --pin", missing.Stored, missing.Needed)
	}
	if err == nil {
		f.warming.drop(func(j *warmJob) bool { return j.keep.Name == k.Name })
	}
	return out, err
}

// Pins lists the prefixes that have a name, by name: those that are stored, and those that are to be computed.
func (f *Front) Pins() (out []Kept, err error) {
	store, err := f.shelf.store()
	if err != nil {
		return nil, err
	}
	running := map[kv.Fingerprint]bool{}
	for _, s := range f.models() {
		if known, err := s.ready(); err == nil {
			running[known.model.Fingerprint()] = true
		}
	}
	waiting := f.warming.list()
	for r, err := range store.Refs() {
		if err != nil {
			return nil, err
		}
		name, ok := strings.CutPrefix(r.Name, refPrefix)
		if !ok || slices.ContainsFunc(waiting, func(k Kept) bool { return k.Name == name }) {
			continue
		}
		k := Kept{Name: name, Tokens: r.Tokens, Pinned: r.Pinned, State: stateWord(r.Pinned), Set: r.Set}
		var meta keptMeta
		if json.Unmarshal(r.Meta, &meta) == nil {
			k.Model = meta.Model
		}
		switch {
		case !r.Stored:
			k.State = "not stored any more: it was evicted, or deleted"
		case !running[r.Model]:
			k.State += ", of a model that does not run here now, or of another build"
		}
		out = append(out, k)
	}
	out = append(out, waiting...)
	slices.SortFunc(out, func(a, b Kept) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Unpin takes the name off a prefix, which stays stored until it is evicted. What was to be computed under it is not.
func (f *Front) Unpin(ctx context.Context, name string) error {
	dropped := f.warming.drop(func(j *warmJob) bool { return j.keep.Name == name })
	store, err := f.shelf.store()
	if err != nil {
		return err
	}
	if err = store.DeleteRef(ctx, refPrefix+name); errors.Is(err, db.ErrNotFound) {
		if dropped > 0 {
			return nil
		}
		return fmt.Errorf("nothing is called %q: see dormouse pin --list", name)
	}
	return err
}
