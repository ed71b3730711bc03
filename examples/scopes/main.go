// Scopes is a chat with two people: one system prompt, which they share, and conversations, which they do not.
//
//	go run ./examples/scopes
//
// It needs nothing but Go and takes seconds. It prints for each turn how many tokens came from the store, and checks it.
// Exit codes: 0 all is as it says; 1 something is not, or failed; 2 the call was wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"

	"github.com/dormousekv/dormouse/examples/command"
	"github.com/dormousekv/dormouse/examples/talk"
	"github.com/dormousekv/dormouse/kv"
)

const system = "You are Hazel, a small helper that lives inside a notes app on a phone. You work without a network. Use short sentences " +
	"and plain words. Say first what was asked for, and then the reason, if one is needed. If you do not know something, say that you do " +
	"not know. Do not guess a date, a price, a name or a number. If the person is sad or tired, be kind and be brief.\n"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	command.End("scopes", run(ctx, os.Args[1:], os.Stdout))
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("scopes", flag.ContinueOnError)
	dir := flags.String("dir", "", "keep the store in this new or empty `folder`, for kvdump, say (default: a temporary one)")
	if err := command.Parse(flags, args, out); err != nil {
		return err
	}
	if *dir == "" {
		if *dir, err = os.MkdirTemp("", "dormouse-scopes-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(*dir)) }()
	} else if err := command.NewFolder("-dir", *dir, "the first turn would find what an earlier run stored"); err != nil {
		return err
	}
	t, err := talk.Open(ctx, *dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()

	shared := len(t.Tokenizer.Encode(system))
	history := map[string][]int32{} // what each person's conversation consists of so far
	prompt := func(scope string, tokens []int32) kv.Prompt {
		// Up to ScopeStart the prompt belongs to everybody, from there on to the scope alone.
		return kv.Prompt{Tokens: tokens, Scope: scope, ScopeStart: shared}
	}
	fmt.Fprintf(out, "The system prompt has %d tokens. It is read once, whoever comes first.\n\n", shared)
	fmt.Fprintln(out, "who    prompt  from the store  computed  ")
	fmt.Fprintln(out, "──────────────────────────────────────────")
	var wrong error
	turn := func(who string, tokens []int32, want int, what string) ([]int32, error) {
		p := prompt(who, tokens)
		got, err := t.Say(ctx, p, 8)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "%-6s %6d  %14d  %8d  %s\n", who, got.Tokens, got.Reused, got.Tokens-got.Reused, what)
		if got.Reused != want {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %d tokens came from the store (%s), expected %d", what, got.Reused, got.Why, want))
		}
		if cold := t.Cold(p, 8); !slices.Equal(got.Answer, cold) {
			wrong = errors.Join(wrong, fmt.Errorf("%s: the answer is %q, and without a store %q", what, t.Tokenizer.Decode(got.Answer), t.Tokenizer.Decode(cold)))
		}
		return got.Answer, nil
	}
	for _, x := range []struct {
		who, text, what string
		want            func(prompt int) int
	}{
		{"anna", "Anna: My doctor is called Weiss. When do I see her?\nHazel:", "nothing is stored yet", func(int) int { return 0 }},
		{"ben", "Ben: Do I have to buy bread today?\nHazel:", "the system prompt, which Anna's turn left", func(int) int { return shared }},
		{"anna", "\nAnna: And what was her name?\nHazel:", "her first turn, answer included", func(int) int { return len(history["anna"]) - 1 }},
		{"ben", "\nBen: And tomorrow?\nHazel:", "his first turn", func(int) int { return len(history["ben"]) - 1 }},
	} {
		tokens := append(slices.Clone(history[x.who]), t.Tokenizer.Encode(x.text)...)
		if history[x.who] == nil {
			tokens = append(t.Tokenizer.Encode(system), tokens...)
		}
		answer, err := turn(x.who, tokens, x.want(len(tokens)), x.what)
		if err != nil {
			return err
		}
		history[x.who] = append(tokens, answer...)
	}
	// The same tokens, but another scope: nobody learns from a hit what somebody else said.
	if _, err := turn("carl", history["anna"], shared, "Anna's very words, said by Carl"); err != nil {
		return err
	}
	if _, err := turn("anna", history["anna"], len(history["anna"])-1, "the same words, said by Anna"); err != nil {
		return err
	}
	if wrong != nil {
		return wrong
	}
	fmt.Fprintln(out, "\nEvery answer is, word for word, that of a model without a store.")
	return nil
}
