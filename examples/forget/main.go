// Forget deletes what one of two people said, and proves that it is gone: no file of the store has her words or what the model
// computed from them, and a store that is opened again finds nothing. The other one loses nothing.
//
//	go run ./examples/forget
//
// It needs nothing but Go and takes seconds. Exit codes: 0 all is as it says; 1 something is not, or failed; 2 the call was wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/examples/command"
	"github.com/dormousekv/dormouse/examples/talk"
	"github.com/dormousekv/dormouse/kv"
)

const (
	system = "You are Hazel, a small helper that lives inside a notes app on a phone. You work without a network. Use short sentences " +
		"and plain words. If you do not know something, say that you do not know.\n"
	annas = "Anna: My doctor told me something on Monday that nobody else must know, and I have to take the white pills twice a day until " +
		"spring. Please remind me of them in the morning and in the evening.\nHazel:"
	bens = "Ben: I have to buy bread, milk and six apples on the way home. Which of them did I forget last week?\nHazel:"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	command.End("forget", run(ctx, os.Args[1:], os.Stdout))
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	if err := command.Parse(flag.NewFlagSet("forget", flag.ContinueOnError), args, out); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "dormouse-forget-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t, err := talk.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer func() {
		if t != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	prompt := func(scope, text string) kv.Prompt {
		tokens := t.Tokenizer.Encode(system)
		return kv.Prompt{Tokens: append(tokens, t.Tokenizer.Encode(text)...), Scope: scope, ScopeStart: len(tokens)}
	}
	anna, ben := prompt("anna", annas), prompt("ben", bens)

	// Two people talk to one assistant.
	said, err := t.Say(ctx, anna, 8)
	if err != nil {
		return err
	}
	other, err := t.Say(ctx, ben, 8)
	if err != nil {
		return err
	}
	if err := t.Model.SetRef(ctx, "anna/last", anna, db.RefOptions{Pinned: true}); err != nil { // a pin keeps nothing from being deleted
		return err
	}
	if err := t.Store.Checkpoint(ctx); err != nil {
		return err
	}
	// What no file may have afterwards: four of her tokens in a row, and a piece of a row that the model computed from them.
	secret := newTraces(anna, said, ben, other)
	fmt.Fprintf(out, "Anna and Ben talk to one assistant, whose system prompt of %d tokens they share.\n", anna.ScopeStart)
	fmt.Fprint(out, "Every file is searched for what is Anna's: pieces of four tokens, and rows that the model computed from them.\n\n")
	before, err := secret.find(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "stored     %s\n", before)
	if before.tokens == 0 || before.rows == 0 {
		return errors.New("her words were never in the files: nothing would be proved")
	}

	// This is all that a program does. Sync returns when the bytes are destroyed.
	gone, err := t.Store.DeleteScope(ctx, "anna")
	if err != nil {
		return err
	}
	if err := t.Store.Sync(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "           DeleteScope(\"anna\") took %d blocks out, Sync destroyed their bytes\n", gone.Blocks)
	after, err := secret.find(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "deleted    %s\n", after)
	if after.tokens+after.rows > 0 {
		return errors.New("her words are still in the files")
	}
	if _, err := t.Store.Ref("anna/last"); !errors.Is(err, db.ErrNotFound) {
		return fmt.Errorf("the name on her prompt is still there: %v", err)
	}

	// Another process would find the same.
	err, t = t.Close(), nil
	if err != nil {
		return err
	}
	report, err := admin.Verify(ctx, dir, admin.VerifyOptions{})
	if err != nil {
		return err
	}
	if len(report.Damage) > 0 {
		return fmt.Errorf("the store is damaged: %v", report.Damage[0])
	}
	if t, err = talk.Open(ctx, dir); err != nil {
		return err
	}
	fmt.Fprintln(out, "           the store was closed, verified and opened again")
	for _, x := range []struct {
		who    string
		prompt kv.Prompt
		want   int
		what   string
	}{
		{"Anna", anna, anna.ScopeStart, "the system prompt, which is not hers"},
		{"Ben", ben, len(ben.Tokens), "all of it: he lost nothing"},
	} {
		n, why, err := t.Model.Probe(ctx, x.prompt, db.MatchOptions{})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-10s %d of %d tokens would be reused: %s\n", x.who, n, len(x.prompt.Tokens), x.what)
		if n != x.want {
			return fmt.Errorf("%s: %d tokens would be reused (%s), expected %d", x.who, n, why, x.want)
		}
	}
	return nil
}
