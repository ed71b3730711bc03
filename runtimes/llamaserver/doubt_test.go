package llamaserver_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// What the front believes of the slot is looked at: a slot that has lost what it held is filled from the store.
func TestNothingGoesAheadInDoubt(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, rig.Roomy("-np", "2")...)
	direct := &api.Client{Base: r.Base, Client: http.DefaultClient}
	c := rig.NewDialog("/v1/chat/completions", "a dog")
	turn := func(what, want string, ahead int) {
		t.Helper()
		before := r.Ahead()
		got := r.Ask(c.Path, c.Body())
		if !strings.HasPrefix(got.Header, want) || r.Ahead()-before != ahead || want != "miss" && got.A.Cached < 600 {
			t.Errorf("%s: %s, %d tokens reused, %d went ahead; expected %s, %d", what, got.Header, got.A.Cached, r.Ahead()-before, want, ahead)
		}
		r.Saved()
		c = c.Next(rig.Spoken(got))
	}
	turn("the first turn", "miss", 0)
	turn("the second turn", "slot", 1)
	for id := range 2 { // past the front
		if err := direct.Erase(context.Background(), id); err != nil {
			t.Fatal(err)
		}
	}
	turn("of an emptied slot", "hit", 0)
	turn("after that", "slot", 1)
	r.Ask("/v1/completions", rig.Object{"prompt": []any{"x", "y"}, "max_tokens": 2}) // passes: it may have been in any slot
	turn("after a request that passed", "", 0)
	turn("after that", "slot", 1)
	c.System += " You are old."
	turn("another system prompt", "", 0)
	c.Messages = append(c.Messages, rig.Object{"role": "user", "content": rig.Story("And", 60)["prompt"]})
	turn("where much is new", "slot", 0)
	turn("after that", "slot", 1)
	r.Front.Files().Soil()
	turn("after rows that are none of the model's", "", 0)
}
