package dialogs_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// The next turn of a conversation goes to its slot before its tokens are known. The answer is that of the server alone, the front knows afterwards what the
// slot holds, and what is stored and counted is as if the tokens had been known before.
func TestNextTurnGoesAhead(t *testing.T) {
	for _, path := range rig.ChatPaths {
		t.Run(path, func(t *testing.T) {
			dir := t.TempDir()
			r := rig.Start(t, llamaserver.Options{Dir: dir}, rig.Roomy("-np", "2")...)
			alone := rig.Plain(t, rig.Roomy("-np", "2")...)
			c := rig.NewDialog(path, "a cat")
			var last rig.Reply
			asked := 0
			for turn := range 4 {
				last = r.Ask(path, c.Body())
				want := rig.Ask(t, context.Background(), alone, path, c.Body())
				if last.Status != http.StatusOK || rig.Spoken(last) != rig.Spoken(want) {
					t.Fatalf("turn %d: %d %q (%s), alone %d %q", turn, last.Status, rig.Spoken(last), last.Header, want.Status, rig.Spoken(want))
				}
				asked += last.A.Cached + last.A.Prompt
				r.Saved()
				if got := r.Ahead(); got != turn {
					t.Errorf("turn %d: %d requests went ahead", turn, got)
				}
				if turn > 0 && (!strings.HasPrefix(last.Header, "slot; tokens=") || rig.Claim(last.Header) != last.A.Cached || last.A.Cached < 600) {
					t.Errorf("turn %d: %s, %d tokens reused", turn, last.Header, last.A.Cached)
				}
				c = c.Next(rig.Spoken(last))
			}
			r.Eventually(func() bool {
				return r.Front.Figures().Requests[figures.Kind{Outcome: figures.Slot, Reason: figures.ServerCache}] == 3
			})
			if f := r.Front.Figures(); f.Asked != int64(asked) || f.Unused != 0 {
				t.Errorf("%d tokens are counted of %d, %d of them restored for nothing", f.Asked, asked, f.Unused)
			}
			r.KillServer() // the last turn was stored as any other
			if got := r.Ask(path, c.Body()); !strings.HasPrefix(got.Header, "hit; tokens=") || got.A.Cached < last.A.Cached+last.A.Prompt-2 {
				t.Errorf("after a kill: %s, %d tokens reused, the turn before had %d", got.Header, got.A.Cached, last.A.Cached+last.A.Prompt)
			}
			if got := r.Ahead(); got != 3 {
				t.Errorf("after a kill a request went ahead")
			}
		})
	}
}

// Clients that go away while their request is sent ahead leave a slot of which the front knows the truth.
func TestClientsGoAhead(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, rig.Roomy("-np", "1")...)
	c := rig.NewDialog("/v1/chat/completions", "a bird")
	for i := range 6 {
		got := r.Ask(c.Path, c.Body())
		if got.Status != http.StatusOK {
			t.Fatalf("%+v", got)
		}
		r.Saved()
		c = c.Next(rig.Spoken(got))
		ctx, cancel := context.WithCancel(context.Background())
		long := c.Body()
		long["max_tokens"], long["stream"] = 2000, true
		done := make(chan struct{})
		go func() {
			defer close(done)
			rig.Ask(t, ctx, r.URL, c.Path, long)
		}()
		if i%2 == 0 {
			r.Eventually(func() bool { return r.Front.Figures().Busy > 0 })
		}
		cancel()
		<-done
		r.Saved()
	}
	r.KillServer()
	if got := r.Ask(c.Path, c.Body()); !strings.HasPrefix(got.Header, "hit") || got.A.Cached < 600 {
		t.Errorf("after a kill: %s, %d tokens reused", got.Header, got.A.Cached)
	}
}

// Conversations by turns over two slots, some faster than their slots are saved: all answers are those of the server alone, and what is stored is restored.
func TestConversationsGoAhead(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, rig.Roomy("-np", "2")...)
	alone := rig.Plain(t, rig.Roomy("-np", "1")...)
	var talks []*rig.Dialog
	for i := range 3 {
		talks = append(talks, rig.NewDialog(rig.ChatPaths[i%2], fmt.Sprint("number ", i)))
	}
	for turn := range 4 {
		for i, c := range talks {
			for range 1 + 2*(turn%2) { // some turns at once
				got := r.Ask(c.Path, c.Body())
				body := c.Body()
				body["cache_prompt"] = false
				want := rig.Ask(t, context.Background(), alone, c.Path, body)
				if got.Status != http.StatusOK || rig.Spoken(got) != rig.Spoken(want) {
					t.Fatalf("turn %d of %d: %q (%s), alone %q", turn, i, rig.Spoken(got), got.Header, rig.Spoken(want))
				}
				c = c.Next(rig.Spoken(got))
			}
			talks[i] = c
		}
	}
	if r.Ahead() == 0 {
		t.Error("none went ahead")
	}
	r.Saved()
	if n := r.Front.Figures().Unused; n > 0 {
		t.Errorf("%d tokens were restored for nothing", n)
	}
}
