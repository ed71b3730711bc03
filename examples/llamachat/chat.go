//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"golang.org/x/term"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/examples/command"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// chatOptions are the flags of -chat.
type chatOptions struct {
	chat                bool
	id                  string
	system              string
	template            string
	script              string
	temperature         float64
	seed                uint64
	answer, ring, facts int // tokens
	recent              int // turns; 0: all
}

// Bounds of the flags of -chat, in tokens but for the last two.
const (
	minRing        = 64
	maxRing        = 1 << 16
	maxTemperature = 10
	maxBranches    = 8
)

// flags names the flags, and returns those of them that only a chat has.
func (o *chatOptions) flags(f *flag.FlagSet) (only map[string]bool) {
	known := map[string]bool{}
	f.VisitAll(func(f *flag.Flag) { known[f.Name] = true })
	f.BoolVar(&o.chat, "chat", false, "hold a conversation; what is said comes from standard input")
	f.StringVar(&o.id, "id", "main", "chat: `name` of the conversation")
	f.StringVar(&o.system, "system", "", "chat: the system prompt; that of a conversation that is there already is changed")
	f.StringVar(&o.template, "template", "", "chat: `name` of a chat template that llama.cpp knows (default: the model's own)")
	f.Float64Var(&o.temperature, "temperature", 0, "chat: draw tokens at this temperature; 0 takes the likeliest one")
	f.Uint64Var(&o.seed, "seed", 1, "chat: what the draws begin with")
	f.IntVar(&o.answer, "answer", 512, "chat: an answer has at most `N` tokens")
	f.IntVar(&o.ring, "ring", 1536, "chat: the turns that answers know have at most `N` tokens; the oldest go first")
	f.IntVar(&o.facts, "facts", 512, "chat: system prompt and facts have at most `N` tokens")
	f.IntVar(&o.recent, "recent", 0, "chat: an answer attends to the last `N` turns only (0: to all that are known)")
	f.StringVar(&o.script, "script", "", "chat: take what is said from this `file`")
	only = map[string]bool{}
	f.VisitAll(func(f *flag.Flag) { only[f.Name] = !known[f.Name] && f.Name != "chat" })
	return only
}

// check refuses flags that do nothing, and values that cannot be.
func (o *chatOptions) check(f *flag.FlagSet, only map[string]bool) (err error) {
	story := map[string]bool{"prompt-file": true, "json": true, "tokens": true, "continue": true}
	f.Visit(func(f *flag.Flag) {
		switch {
		case only[f.Name] && !o.chat:
			err = command.Wrong("-%s is for a conversation: give -chat, too", f.Name)
		case story[f.Name] && o.chat:
			err = command.Wrong("-%s is not for a conversation: leave out -chat, or it", f.Name)
		}
	})
	switch {
	case err != nil || !o.chat:
	case o.id == "":
		err = command.Wrong("-id is empty: a conversation needs a name")
	case !(o.temperature >= 0 && o.temperature <= maxTemperature):
		err = command.Wrong("-temperature %v: 0 to %d", o.temperature, maxTemperature)
	case o.ring < minRing || o.ring > maxRing:
		err = command.Wrong("-ring %d: %d to %d tokens", o.ring, minRing, maxRing)
	case o.answer < 1 || o.answer > o.ring/2:
		err = command.Wrong("-answer %d: 1 to %d tokens, half of -ring", o.answer, o.ring/2)
	case o.facts < minRing || o.facts > maxRing:
		err = command.Wrong("-facts %d: %d to %d tokens", o.facts, minRing, maxRing)
	case o.recent < 0:
		err = command.Wrong("-recent %d: 1 or more turns, or 0 for all", o.recent)
	}
	return err
}

// talk is a chat that goes on: a model with a host, and the conversation that is on the screen.
type talk struct {
	o        options
	in       *lines
	out      io.Writer
	template template
	tokens   tokenizer
	end      []kv.Token // what stands after an answer
	system   []kv.Token // what a new conversation begins with
	name     string     // of the model

	l     *loaded
	store *db.Store
	host  *chat.Host

	c      *chat.Conversation
	open   map[string]*chat.Conversation
	last   map[string]cost // of the last turn since the conversation was opened
	failed int             // lines that could not be done
}

// converse holds a chat until the user leaves. ok is false if a line of a script could not be done.
func converse(ctx context.Context, o options, in io.Reader, out io.Writer, show func(step)) (ok bool, err error) {
	terminal := false
	if o.script != "" {
		f, err := os.Open(o.script)
		if err != nil {
			return false, command.Wrong("-script: %w", err)
		}
		defer f.Close()
		in = f
	} else if f, isFile := in.(*os.File); isFile {
		terminal = term.IsTerminal(int(f.Fd()))
	}
	folder, err := look(ctx, o.Store)
	if err != nil {
		return false, err
	}
	t := &talk{o: o, out: out, l: &loaded{j: o.job, say: show}, open: map[string]*chat.Conversation{}, last: map[string]cost{}}
	if err = t.start(ctx); err == nil {
		err = t.turnTo(ctx, o.id)
	}
	if err != nil {
		return false, errors.Join(err, t.close(), folder.leaveNothing(ctx))
	}
	t.in = newLines(in, out, terminal)
	defer t.in.close()
	err = t.loop(ctx)
	return t.failed == 0 || terminal, errors.Join(err, t.close())
}

// start loads the model, and makes a host on the store: all that a program needs for conversations on llama.cpp.
func (t *talk) start(ctx context.Context) error {
	lib, err := llama.Load(t.o.Lib)
	if err != nil {
		return err
	}
	l := t.l
	l.lib = lib
	l.say(step{What: "load the model"})
	if l.model, err = lib.LoadModel(t.o.Model, llama.ModelOptions{}); err != nil {
		return err
	}
	if err := t.readTemplate(); err != nil {
		return err
	}
	library, err := llamacpp.Bind(lib.Lookup)
	if err != nil {
		return err
	}
	options := t.conversation()
	cells := 2*(options.Facts+options.Ring) + options.Reserve + maxBranches*chat.MaxBranchTokens + int(library.Window(l.model.Pointer()))
	// Two for the conversation and its view, one for a rewrite, and one for each branch; all of them twice if the model has windows, and one
	// for rows on their way.
	const sequences = 2*(2+1+maxBranches) + 1
	co := l.contextOptions(cells)
	co.Sequences, co.Unified = sequences, true
	if l.context, err = l.model.NewContext(co); err != nil {
		return err
	}
	l.say(step{What: "hash the model file, if that was not done before"})
	if _, err := library.Describe(l.model.Pointer(), l.identity()); err != nil {
		return err
	}
	warnings := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if t.store, err = db.Open(ctx, t.o.Store, db.Options{Codec: t.o.Codec, Logger: warnings}); err != nil {
		return err
	}
	attach := llamacpp.Options{Identity: l.identity(), Decode: l.context.Decode, Logger: warnings}
	s, err := llamacpp.Attach(ctx, t.store, library, l.context.Pointer(), attach)
	if err != nil {
		return err
	}
	rt, err := s.Runtime(llamacpp.RuntimeOptions{Decode: l.context.DecodeSteps, Logits: l.context.Logits})
	if err != nil {
		return err
	}
	t.name = s.Model().Descriptor().Name
	t.host, err = chat.NewHost(t.store, s.Model(), rt)
	return err
}

// readTemplate takes the model's chat template apart, or the one that was asked for.
func (t *talk) readTemplate() error {
	m := t.l.model
	t.tokens = tokenizer{parse: m.Tokenize, plain: m.TokenizeText}
	if _, err := m.TokenizeText("a"); err != nil {
		return err
	}
	name := cmp.Or(t.o.template, m.Template())
	if name == "" {
		return fmt.Errorf("%s has no chat template, as models have none that were not trained to chat: name one that llama.cpp knows with -template: gemma, chatml, llama3 …", t.o.Model)
	}
	var err error
	t.template, err = takeApart(func(answer bool, chat ...message) (string, error) {
		var ms []llama.Message
		for _, m := range chat {
			ms = append(ms, llama.Message{Role: m.role, Content: m.text})
		}
		return t.l.lib.ApplyTemplate(name, ms, answer)
	})
	if err != nil {
		whose := "the chat template of " + t.o.Model
		if t.o.template != "" {
			whose = "-template " + t.o.template
		}
		return fmt.Errorf("%s: %w: name one that llama.cpp knows with -template: gemma, chatml, llama3 …", whose, err)
	}
	if t.end, err = t.tokens.parse(t.template.end, false); err != nil {
		return err
	}
	t.system, err = t.systemTokens()
	if n := len(t.system); n > t.o.facts {
		return fmt.Errorf("-system has %d tokens; with the facts it may have %d (-facts)", n, t.o.facts)
	}
	return err
}

// conversation says how conversations are held.
func (t *talk) conversation() chat.Options {
	o := chat.Options{Facts: t.o.facts, Ring: t.o.ring, Reserve: t.o.answer + len(t.end)}
	if t.o.recent > 0 {
		o.Policy = chat.Recent(t.o.recent)
	}
	return o
}

// turnTo puts a conversation on the screen, and makes it if it is not there.
func (t *talk) turnTo(ctx context.Context, id string) error {
	if c := t.open[id]; c != nil {
		t.c = c
		return t.greet()
	}
	o := t.conversation()
	known := false
	for i, err := range t.host.List(ctx) {
		if known = known || err == nil && i.ID == id; known {
			break
		}
	}
	if !known || t.o.system != "" {
		o.System = t.system
	}
	c, err := t.host.Open(ctx, id, o)
	switch {
	case errors.Is(err, chat.ErrOptions):
		return fmt.Errorf("%w: give less to -ring and -facts", err)
	case errors.Is(err, chat.ErrTokenizer):
		return fmt.Errorf("%w: take the model with which it was held, or another name", err)
	case err != nil:
		return err
	}
	t.c, t.open[id] = c, c
	return t.greet()
}

// systemTokens are what a new conversation begins with.
func (t *talk) systemTokens() ([]kv.Token, error) {
	if t.o.system == "" {
		return t.tokens.around(t.template.begin, "", "", true)
	}
	return t.tokens.around(t.template.begin+t.template.system, t.o.system, t.template.systemEnd, true)
}

// greet says which conversation it is, and how it ended.
func (t *talk) greet() error {
	turns := t.c.Turns()
	if len(turns) == 0 && len(t.c.Facts()) == 0 {
		t.say("Conversation %q is new. /help lists the commands.", t.c.ID())
		return nil
	}
	t.say("Conversation %q%s: %s, %s. /help lists the commands.", t.c.ID(), t.titled(t.c.Meta()), count(len(turns), "turn"), count(len(t.c.Facts()), "fact"))
	if n := len(turns); n > 0 {
		t.say("It ended so:\n> %s\n%s", printable(string(turns[n-1].Meta)), t.answerText(turns[n-1].Answer))
	}
	return nil
}

func (t *talk) titled(title []byte) string {
	if len(title) == 0 {
		return ""
	}
	return ", " + printable(string(title))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// say prints a line.
func (t *talk) say(format string, args ...any) { fmt.Fprintf(t.out, format+"\n", args...) }

// text is what tokens say, without control tokens.
func (t *talk) text(tokens []kv.Token) (s string) {
	for _, token := range tokens {
		s += t.l.model.Piece(token)
	}
	return printable(s)
}

// without takes what stands around a text away from its end.
func without(tokens, end []kv.Token) []kv.Token {
	if n := len(tokens) - len(end); n >= 0 && slices.Equal(tokens[n:], end) {
		return tokens[:n]
	}
	return tokens
}

func (t *talk) close() error {
	var errs []error
	if t.host != nil {
		errs = append(errs, t.host.Close())
	}
	if t.store != nil {
		errs = append(errs, t.store.Close())
	}
	t.l.close()
	return errors.Join(errs...)
}
