package chat_test

import (
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/kv"
)

// A conversation whose scope somebody deletes from the store while it is open has its rows in the cache still. None of them is stored again.
func TestDeletedWhileOpen(t *testing.T) {
	system, said := tokens(1, 20), tokens(3, 18)
	whole := path("a", 20, append(append([]kv.Token{}, system...), said...)...)
	remove := func(r *room) {
		_, err := r.store.DeleteScope(ctx, chat.Scope("a"))
		r.check(err)
		if n := r.stored(r.o, whole); n > 20 {
			r.Fatalf("%d rows are stored after the deletion", n)
		}
	}
	for name, end := range map[string]func(r *room, c *chat.Conversation){
		"between turns": func(r *room, c *chat.Conversation) {
			remove(r)
			turn := r.begin(c, tokens(4, 3), chat.BeginOptions{})
			r.want(turn.Commit(ctx), db.ErrNotFound)
			r.check(turn.Abort(ctx))
		},
		"in a turn": func(r *room, c *chat.Conversation) {
			turn := r.begin(c, tokens(4, 3), chat.BeginOptions{})
			remove(r)
			r.want(turn.Commit(ctx), db.ErrNotFound)
			r.check(turn.Abort(ctx))
		},
		"while rows are being stored": func(r *room, c *chat.Conversation) {
			r.begin(c, tokens(4, 3), chat.BeginOptions{})
			r.rt.before(func(call string) error {
				if call == "store" {
					remove(r)
				}
				return nil
			})
		},
		"by another process": func(r *room, c *chat.Conversation) {
			r.begin(c, tokens(4, 3), chat.BeginOptions{})
			r.check(r.store.Suspend(ctx))
			other, err := db.Open(ctx, r.dir, db.Options{})
			r.check(err)
			_, err = other.DeleteScope(ctx, chat.Scope("a"))
			r.check(err)
			r.check(other.Close())
			r.check(r.store.Resume(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t, hashed.Options{BlockTokens: 16})
			c := r.conversation("a", chat.Options{System: system, Facts: 30, Ring: 60, Reserve: 8})
			r.turn(c, said, 3, chat.BeginOptions{}) // whose last token is computed by the next turn
			if n := r.stored(r.o, whole); n != len(whole.Tokens) {
				t.Fatalf("%d rows are stored", n)
			}
			end(r, c)
			r.check(c.Close())
			if n := r.stored(r.o, whole); n > 20 {
				t.Errorf("%d rows are stored again", n)
			}
			for ref, err := range r.store.Refs() {
				if err != nil || ref.Name == chat.Scope("a") {
					t.Errorf("a ref: %+v, %v", ref, err)
				}
			}
		})
	}
}

// A conversation that another host of the store has open is neither opened nor deleted: both say so. What is not open goes, and what was never there.
func TestOpenElsewhere(t *testing.T) {
	r := newRoom(t, hashed.Options{BlockTokens: 16})
	c := r.conversation("a", chat.Options{Facts: 30, Ring: 60, Reserve: 8})
	r.turn(c, tokens(3, 18), 3, chat.BeginOptions{})
	rt, err := hashed.New(ctx, r.store, r.o)
	r.check(err)
	other, err := chat.NewHost(r.store, rt.Model(), rt)
	r.check(err)
	_, err = other.Open(ctx, "a", chat.Options{})
	r.want(err, chat.ErrOpen)
	r.want(err, db.ErrSessionOpen)
	r.want(other.Delete(ctx, "a"), chat.ErrOpen)
	r.turn(c, tokens(4, 3), 3, chat.BeginOptions{})
	r.check(c.Close())
	r.check(other.Delete(ctx, "a"))
	r.check(other.Delete(ctx, "never there"))
	if list, err := db.Collect(r.h.List(ctx)); err != nil || len(list) > 0 {
		t.Errorf("left is %+v, %v", list, err)
	}
	if refs, err := db.Collect(r.store.Refs()); err != nil || len(refs) > 0 {
		t.Errorf("left are refs %+v, %v", refs, err)
	}
	r.check(other.Close())
	r.conversation("a", chat.Options{})
}
