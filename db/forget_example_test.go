package db_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// forget deletes all that was stored for a user. After nil, no file of the store has a byte of it.
func forget(ctx context.Context, store *db.Store, user string) error {
	gone, err := store.DeleteScope(ctx, user) // nothing of it is matched any more, also after a crash
	if err != nil {
		return err
	}
	fmt.Printf("%d blocks and %d refs deleted\n", gone.Blocks, gone.Refs)
	err = store.Sync(ctx) // destroys the bytes
	var pending *db.PendingError
	if errors.As(err, &pending) { // not of what open matches can see: close them, and Sync again
		return fmt.Errorf("%d matches are open: %w", pending.Leases, err)
	}
	return err
}

// docs/embedding.md shows forget: one of two users goes, and what they share stays.
func Example_forget() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "dormouse")
	defer os.RemoveAll(dir)
	store, err := db.Open(ctx, dir, db.Options{})
	check(err)
	defer store.Close()
	m, err := store.Register(ctx, model)
	check(err)

	system := tokenize("a long system prompt")[:80:80]
	prompts := map[string]kv.Prompt{}
	for i, user := range []string{"alice", "bob"} {
		prompts[user] = kv.Prompt{Tokens: append(system, int32(i), 2, 3, 4), Scope: user, ScopeStart: 80}
		check(round(ctx, m.Model, &engine{}, prompts[user]))
	}
	check(m.SetRef(ctx, "alice/last", prompts["alice"], db.RefOptions{Pinned: true}))

	open, err := m.Match(ctx, prompts["alice"], db.MatchOptions{})
	check(err)
	fmt.Println("with an open match:", forget(ctx, store, "alice") != nil)
	check(open.Close())
	check(forget(ctx, store, "alice"))
	for _, user := range []string{"alice", "bob"} {
		n, _, err := m.Probe(ctx, prompts[user], db.MatchOptions{})
		check(err)
		fmt.Printf("%s: %d of %d tokens\n", user, n, len(prompts[user].Tokens))
	}
	// Output:
	// reused 0 of 84 tokens: nothing stored
	// reused 80 of 84 tokens: stored prefix ends at token 80
	// 1 blocks and 1 refs deleted
	// with an open match: true
	// 0 blocks and 0 refs deleted
	// alice: 80 of 84 tokens
	// bob: 84 of 84 tokens
}
