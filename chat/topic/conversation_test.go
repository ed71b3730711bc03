package topic_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/chat/topic"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

// What a turn attends to follows its subject: turns about something else are hidden, those before a follow-up stay, and what was hidden comes back.
func TestConversation(t *testing.T) {
	ctx := context.Background()
	store, err := db.Open(ctx, memdir.Dir(t), db.Options{Logger: slog.New(slog.DiscardHandler)})
	check(t, err)
	rt, err := hashed.New(ctx, store, hashed.Options{})
	check(t, err)
	host, err := chat.NewHost(store, rt.Model(), rt)
	check(t, err)
	c, err := host.Open(ctx, "walk", chat.Options{})
	check(t, err)
	embed := func(text string) ([]float32, error) { return topic.Words(text), nil }
	say := func(text string) (view string) {
		message := []kv.Token{1, 2, 3}
		e, err := topic.Of(text, c.Turns(), embed)
		check(t, err)
		t, err := c.Begin(ctx, message, chat.BeginOptions{Embedding: e, Policy: chat.Topic(topic.WordsThreshold)})
		if err == nil {
			err = t.Commit(ctx)
		}
		if err != nil {
			return err.Error()
		}
		for _, x := range c.Turns() {
			if x.InView {
				view += fmt.Sprint(x.ID)
			}
		}
		return view
	}
	for i, x := range []struct{ text, view string }{
		{"How do I bake a cake?", "1"},
		{"How long does it take?", "12"},
		{"My printer prints blank pages.", "23"}, // the last one is always in view
		{"The printer still prints nothing.", "34"},
		{"And with a cable?", "345"},
		{"What cake can I bake without eggs?", "1256"},
	} {
		if got := say(x.text); got != x.view {
			t.Errorf("turn %d, %q, attends to %s, want %s", i+1, x.text, got, x.view)
		}
	}
	check(t, host.Close())
	check(t, store.Close())
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
