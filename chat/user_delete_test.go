package chat_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/kv"
)

// A user's own system prompt is in no conversation's scope. It goes with the last conversation of that user, of every model that has computed it; that
// of others, and what all share, stays.
func TestUsersSystemPromptGoesWithTheLastConversation(t *testing.T) {
	r := newRoom(t, hashed.Options{BlockTokens: 16})
	system := tokens(1, 40)
	of := func(user string) kv.Prompt {
		p := kv.Prompt{Tokens: system}
		if user != "" {
			p.Spans = []kv.Span{{Len: 1, Hash: kv.HashOf("dormouse user\x00" + user)}}
		}
		return p
	}
	hold := func(id, user string) {
		t.Helper()
		c := r.conversation(id, chat.Options{System: system, User: user, Facts: 60, Ring: 60, Reserve: 8})
		r.turn(c, tokens(2, 20), 4, chat.BeginOptions{})
		r.check(c.Close())
	}
	for id, user := range map[string]string{"1": "ada", "2": "ada", "3": "ben", "4": ""} {
		hold(id, user)
	}
	other := r.o
	other.Weights = "new"
	r.again(func(o *hashed.Options) { o.Weights = "new" })
	hold("1", "ada")
	want := func(when string, o hashed.Options, user string, stored bool) {
		t.Helper()
		if n := r.stored(o, of(user)); (n == 40) != stored || !stored && n > 0 {
			t.Errorf("%s: %d tokens of the system prompt of user %q are stored", when, n, user)
		}
	}
	was := r.o
	was.Weights = ""
	for _, o := range []hashed.Options{was, other} {
		want("at first", o, "ada", true)
	}
	r.check(r.h.Delete(ctx, "1"))
	want("after one of two", was, "ada", true)
	r.check(r.h.Delete(ctx, "2"))
	r.check(r.store.Sync(ctx))
	for _, o := range []hashed.Options{was, other} {
		want("after the last", o, "ada", false)
	}
	want("after Ada's last", was, "ben", true)
	want("after Ada's last", was, "", true)
	r.check(r.h.Delete(ctx, "4"))
	want("everybody's", was, "", true)
	r.check(r.h.Delete(ctx, "3"))
	want("after the last", was, "ben", false)
}

// Where a deletion meets damage in the index, what it could not delete is not passed over: it returns an error, or the system prompt is gone.
func TestUsersSystemPromptAndADamagedIndex(t *testing.T) {
	r := newRoom(t, hashed.Options{BlockTokens: 16})
	system := tokens(1, 40)
	for i := range 40 { // so that the index has pages
		c := r.conversation(fmt.Sprint(i), chat.Options{System: tokens(100+i, 40), Facts: 60, Ring: 60, Reserve: 8})
		r.turn(c, tokens(2, 40), 4, chat.BeginOptions{})
		r.check(c.Close())
	}
	c := r.conversation("ada's", chat.Options{System: system, User: "ada", Facts: 60, Ring: 60, Reserve: 8})
	r.turn(c, tokens(2, 20), 4, chat.BeginOptions{})
	r.check(c.Close())
	r.again()
	name := filepath.Join(r.store.Dir(), "index.db")
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	r.check(err)
	defer f.Close()
	info, err := f.Stat()
	r.check(err)
	for at := int64(4 * 4096); at < info.Size(); at += 4096 {
		_, err := f.WriteAt(make([]byte, 2000), at+1000)
		r.check(err)
	}
	of := kv.Prompt{Tokens: system, Spans: []kv.Span{{Len: 1, Hash: kv.HashOf("dormouse user\x00ada")}}}
	if err = r.h.Delete(ctx, "ada's"); errors.Is(err, db.ErrIndexDamaged) {
		err = r.h.Delete(ctx, "ada's")
	}
	r.check(err)
	if n := r.stored(r.o, of); n > 0 {
		t.Errorf("%d tokens of the system prompt are stored still", n)
	}
}
