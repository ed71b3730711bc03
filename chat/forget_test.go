package chat_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/kv"
)

// grep names the files of the store that have the text in them.
func (r *room) grep(text string) (files []string) {
	r.Helper()
	r.check(filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) {
			files = append(files, path)
		}
		return err
	}))
	return files
}

// path is a prompt whose rows are those of a conversation's own scope.
func path(id string, system int, t ...kv.Token) kv.Prompt {
	return kv.Prompt{Tokens: t, Scope: chat.Scope(id), ScopeStart: system}
}

// stored is how many leading tokens of a prompt are stored for the model.
func (r *room) stored(o hashed.Options, p kv.Prompt) int {
	r.Helper()
	rt, err := hashed.New(ctx, r.store, o)
	r.check(err)
	n, err := rt.Load(ctx, p, 0, nil)
	r.check(err)
	return n
}

const secret = "sesame opens it"

// Forget erases a turn whether it stands, was evicted, was rewound, or was computed with other weights; and it finishes what an error left.
func TestForget(t *testing.T) {
	system, first, said := tokens(1, 20), tokens(2, 10), tokens(3, 18)
	o := chat.Options{System: system, Facts: 30, Ring: 60, Reserve: 8}
	whole := path("a", 20, append(append(append([]kv.Token{}, system...), first...), said...)...)
	for name, change := range map[string]func(r *room, c *chat.Conversation, id chat.TurnID) *chat.Conversation{
		"standing": func(_ *room, c *chat.Conversation, _ chat.TurnID) *chat.Conversation { return c },
		"evicted": func(r *room, c *chat.Conversation, _ chat.TurnID) *chat.Conversation {
			r.turn(c, tokens(4, 40), 0, chat.BeginOptions{Reserve: 15})
			return c
		},
		"rewound": func(r *room, c *chat.Conversation, id chat.TurnID) *chat.Conversation {
			r.check(c.Rewind(ctx, id))
			return c
		},
		"rewound, and read again": func(r *room, c *chat.Conversation, id chat.TurnID) *chat.Conversation {
			r.check(c.Rewind(ctx, id))
			r.again()
			return r.conversation("a", o)
		},
		"of other weights": func(r *room, _ *chat.Conversation, _ chat.TurnID) *chat.Conversation {
			r.again(func(o *hashed.Options) { o.Weights = "new" })
			return r.conversation("a", o)
		},
		"of other weights, rewritten": func(r *room, _ *chat.Conversation, _ chat.TurnID) *chat.Conversation {
			r.again(func(o *hashed.Options) { o.Weights = "new" })
			c := r.conversation("a", o)
			r.turn(c, tokens(4, 4), 2, chat.BeginOptions{})
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t, hashed.Options{BlockTokens: 16})
			c := r.conversation("a", o)
			r.turn(c, first, 0, chat.BeginOptions{Reserve: 2})
			id := r.turn(c, said, 0, chat.BeginOptions{Meta: []byte(secret), Reserve: 2})
			if n := r.stored(r.o, whole); n != 48 {
				t.Fatalf("%d rows are stored", n)
			}
			c = change(r, c, id)
			for k := range 4 { // each of its loads fails once, the one after the new log is in place, too
				n := 0
				r.rt.before(func(call string) error {
					if call == "load" {
						if n++; n == k {
							return errTest
						}
					}
					return nil
				})
				if err := c.Forget(ctx, id); err != nil && !errors.Is(err, errTest) {
					t.Fatal(err)
				}
			}
			r.rt.before(nil)
			r.check(c.Forget(ctx, id))
			if files := r.grep(secret); len(files) > 0 {
				t.Errorf("in %q", files)
			}
			for _, weights := range []string{"", "new"} {
				model := r.o
				model.Weights = weights
				if n := r.stored(model, whole); n > 30 {
					t.Errorf("%d rows of %d are stored, weights %q", n, len(whole.Tokens), weights)
				}
			}
			for _, x := range c.Turns() {
				if x.ID == id {
					t.Errorf("%+v", x)
				}
			}
			r.want(c.Forget(ctx, id+10), chat.ErrNoTurn)
			r.turn(c, tokens(5, 4), 2, chat.BeginOptions{})
		})
	}
}

// A fact that was removed, or replaced, is erased by the next rewrite, which SetSystem does at once.
func TestRemovedFactIsErased(t *testing.T) {
	r := newRoom(t, hashed.Options{BlockTokens: 16})
	system, fact := tokens(1, 20), tokens(2, 18)
	c := r.conversation("a", chat.Options{System: system, Facts: 60, Ring: 60, Reserve: 8})
	r.check(c.SetFact(ctx, secret, fact))
	r.turn(c, tokens(3, 10), 5, chat.BeginOptions{})
	r.check(c.SetFact(ctx, secret, nil))
	whole := path("a", 20, append(append([]kv.Token{}, system...), fact...)...)
	if n, files := r.stored(r.o, whole), r.grep(secret); n != 38 || len(files) == 0 {
		t.Fatalf("%d rows are stored, the name is in %q", n, files)
	}
	r.check(c.SetSystem(ctx, c.System()))
	r.check(r.store.Sync(ctx))
	if n, files := r.stored(r.o, whole), r.grep(secret); n > 20 || len(files) > 0 {
		t.Errorf("%d rows are stored, the name is in %q", n, files)
	}
	if len(c.Turns()) != 1 {
		t.Errorf("%+v", c.Turns())
	}
	r.clean(c)
}

// A number that a turn had is no other turn's, though nothing of it is left.
func TestTurnNumbers(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	c := r.conversation("a", chat.Options{})
	var last chat.TurnID
	for i, end := range []func(chat.TurnID) error{
		func(id chat.TurnID) error { return c.Rewind(ctx, id) },
		func(id chat.TurnID) error { return c.Forget(ctx, id) },
		func(id chat.TurnID) error { return errors.Join(c.Rewind(ctx, id), c.SetSystem(ctx, tokens(9, 3))) },
		func(id chat.TurnID) error { return nil },
	} {
		id := r.turn(c, tokens(i, 4), 2, chat.BeginOptions{})
		if id <= last {
			t.Errorf("turn %d comes after turn %d", id, last)
		}
		last = id
		r.check(end(id))
		r.again()
		c = r.conversation("a", chat.Options{})
	}
}

// What does not make the log longer does not make the file longer for ever, nor what is stored.
func TestFileIsBounded(t *testing.T) {
	big := strings.Repeat("x", chat.MaxMeta)
	for name, do := range map[string]func(r *room, c *chat.Conversation, i int){
		"meta": func(r *room, c *chat.Conversation, i int) { r.check(c.SetMeta(ctx, []byte(big))) },
		"facts": func(r *room, c *chat.Conversation, i int) {
			r.check(c.SetFact(ctx, big[:40<<10], tokens(i, 3)))
			r.check(c.SetFact(ctx, big[:40<<10], nil))
		},
		"rewound turns": func(r *room, c *chat.Conversation, i int) {
			r.check(c.Rewind(ctx, r.turn(c, tokens(i, 30), 0, chat.BeginOptions{Meta: []byte(big)})))
		},
		"an open turn beside": func(r *room, c *chat.Conversation, i int) {
			turn := r.begin(c, tokens(i, 30), chat.BeginOptions{})
			r.check(c.SetMeta(ctx, []byte(big)))
			r.check(turn.Abort(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t, hashed.Options{BlockTokens: 16})
			o := chat.Options{System: tokens(1, 5), Facts: 40, Ring: 60, Reserve: 8}
			c := r.conversation("a", o)
			r.check(c.SetFact(ctx, "old", tokens(2, 6)))
			r.turn(c, tokens(3, 5), 5, chat.BeginOptions{Policy: chat.Recent(0)})
			r.check(c.SetFact(ctx, "old", tokens(4, 6)))
			r.turn(c, tokens(5, 5), 5, chat.BeginOptions{Policy: chat.Recent(0)})
			most := int64(0)
			for i := range 80 {
				do(r, c, i)
				for x, err := range r.h.List(ctx) {
					r.check(err)
					most = max(most, x.Bytes)
				}
			}
			if most > 3<<20 || most < 1<<19 {
				t.Errorf("the file became %d bytes long", most)
			}
			before, turns, wait := c.View(), len(c.Turns()), facts(c)
			r.again()
			c = r.conversation("a", o)
			after := c.View()
			if len(before) != len(after) || len(c.Turns()) != turns || facts(c) != wait {
				t.Fatalf("read again: %+v, want %+v", after, before)
			}
			for i := range after {
				if after[i] != before[i] {
					t.Errorf("read again: %+v, want %+v", after[i], before[i])
				}
			}
			if turn := r.begin(c, tokens(6, 5), chat.BeginOptions{}); turn.Stats().Prefilled > 20 {
				t.Errorf("%d rows were computed anew", turn.Stats().Prefilled)
			}
			r.clean(c)
			blocks := 0
			for _, err := range r.store.Blocks(ctx) {
				r.check(err)
				blocks++
			}
			if blocks > 30*8 { // a rewind leaves at most four until the file is written anew
				t.Errorf("%d blocks are stored", blocks)
			}
		})
	}
}
