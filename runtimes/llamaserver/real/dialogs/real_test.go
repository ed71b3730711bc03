package dialogs_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"time"

	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// What was computed once is restored after the server was killed, and the answer is what it was.
func TestAnswerAfterKill(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "4096")
	first := r.Ask("/completion", rig.Story("Once upon a time", 12))
	if first.Status != 200 || !strings.HasPrefix(first.Header, "miss") || first.Text == "" {
		t.Fatalf("the first answer is %+v", first)
	}
	r.Saved()
	r.KillServer()
	again := r.Ask("/completion", rig.Story("Once upon a time", 12))
	if !strings.HasPrefix(again.Header, "hit; tokens=") || again.Text != first.Text {
		t.Errorf("after the kill the answer is %q (%s), expected %q", again.Text, again.Header, first.Text)
	}
	if all := first.A.Cached + first.A.Prompt; again.A.Cached != all-1 {
		t.Errorf("the server reused %d tokens of %d", again.A.Cached, all)
	}
	still := r.Ask("/completion", rig.Story("Once upon a time", 12))
	if !strings.HasPrefix(still.Header, "slot") {
		t.Errorf("of what the slot still has the answer says %s", still.Header)
	}
	r.Eventually(func() bool { // a request is counted when its client has all of the answer
		return r.Front.Figures().Requests[figures.Kind{Outcome: figures.Slot, Reason: figures.ServerCache}] == 1
	})
	r.Saved()
	longer := rig.Story("Once upon a time", 12)
	longer["prompt"] = longer["prompt"].(string) + first.Text + " The end of"
	r.KillServer()
	on := r.Ask("/completion", longer)
	if want := first.A.Cached + first.A.Prompt; on.A.Cached < want {
		t.Errorf("of a prompt that goes on %d tokens were reused (%s), expected at least %d", on.A.Cached, on.Header, want)
	}
}

// Conversations over one system prompt share it, through few slots, with kills of the server and of the front in between. All
// answers are those of a server without a front.
func TestConversationsAreAsAlone(t *testing.T) {
	const conversations, turns = 8, 3
	dir := t.TempDir()
	alone := rig.Plain(t, "-c", "4096", "-np", "1")
	r := rig.Start(t, llamaserver.Options{Dir: dir}, "-c", "4096", "-np", "2")
	system := rig.Story("You know all stories.", 6)["prompt"].(string)
	talks := make([]string, conversations)
	hits := 0
	for turn := range turns {
		for i := range talks {
			if talks[i] == "" {
				talks[i] = system
			}
			talks[i] += fmt.Sprintf(" Cat %d, day %d.", i, turn)
			body := rig.Object{"prompt": talks[i], "n_predict": 8, "temperature": 0}
			got := r.Ask("/completion", body)
			body["cache_prompt"] = false
			want := rig.Ask(t, context.Background(), alone, "/completion", body)
			if got.Status != 200 || got.Text != want.Text {
				t.Fatalf("turn %d of conversation %d: %q (%s), alone %q", turn, i, got.Text, got.Header, want.Text)
			}
			if turn+i > 0 && 10*got.A.Cached < 6*(got.A.Cached+got.A.Prompt) {
				t.Errorf("turn %d of conversation %d: %d tokens were reused, and %d computed (%s)", turn, i, got.A.Cached, got.A.Prompt, got.Header)
			}
			if strings.HasPrefix(got.Header, "hit") {
				hits++
			}
			talks[i] += got.Text
			switch turn*conversations + i {
			case 5, 17:
				r.KillServer()
			case 11:
				r.Stop()
				r = rig.Start(t, llamaserver.Options{Dir: dir}, "-c", "4096", "-np", "2")
			}
		}
	}
	if hits < 3 {
		t.Errorf("%d of %d requests were helped from the store, expected one after each kill at least", hits, conversations*turns)
	}
	r.Saved()
	if n := r.Front.Figures().Unused; n > 0 {
		t.Errorf("%d tokens were restored for nothing", n)
	}
}

// Many requests at once get an answer each, and no slot works for two.
func TestManyAtOnce(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "8192", "-np", "3")
	var wait sync.WaitGroup
	for i := range 24 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for turn := range 2 {
				got := r.Ask("/completion", rig.Story(fmt.Sprint("Story ", i%6), 6+2*turn))
				if got.Status != 200 || got.Text == "" {
					t.Errorf("request %d: %+v", i, got)
				}
			}
		}()
	}
	wait.Wait()
	r.Saved()
	f := r.Front.Figures()
	t.Logf("%d tokens asked, %d reused, %d restored, %d of these for nothing", f.Asked, f.Reused, f.Restored, f.Unused)
	if f.Busy != 0 {
		t.Errorf("%d slots are at work", f.Busy)
	}
	if f.Unused > f.Restored/10 {
		t.Errorf("of %d tokens that were restored, %d were computed again", f.Restored, f.Unused)
	}
}

// A client that goes away gives its slot back.
func TestClientsGo(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "8192", "-np", "1")
	gone := 0
	for i := range 6 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(2+15*i)*time.Millisecond)
		body := rig.Story(fmt.Sprint("Going ", i), 12)
		body["n_predict"] = 2000
		if got := rig.Ask(t, ctx, r.URL, "/completion", body); got.Status == 0 {
			gone++
		}
		cancel()
	}
	if gone == 0 {
		t.Error("no client went")
	}
	if got := r.Ask("/completion", rig.Story("Staying", 4)); got.Status != 200 || got.Text == "" {
		t.Errorf("the next request: %+v", got)
	}
	r.Saved()
}

// Every way in gives what the server gives, and says what became of it.
func TestEndpoints(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "4096", "-np", "2")
	alone := rig.Plain(t, "-c", "4096", "-np", "2")
	text := rig.Story("In every way", 8)["prompt"]
	for _, c := range []struct {
		path, header string
		body         rig.Object
	}{
		{"/completion", "miss", rig.Object{"prompt": text, "n_predict": 8}},
		{"/completion", "slot", rig.Object{"prompt": text, "n_predict": 8}},
		{"/completions", "", rig.Object{"prompt": []any{text}, "n_predict": 8}},
		{"/v1/completions", "", rig.Object{"prompt": text, "max_tokens": 8}},
		{"/v1/chat/completions", "miss", rig.Object{"messages": []rig.Object{{"role": "user", "content": text}}, "max_tokens": 8}},
		{"/v1/chat/completions", "slot", rig.Object{"messages": []rig.Object{{"role": "user", "content": text}}, "max_tokens": 8}},
		{"/completion", "pass; reason=lookup_off", rig.Object{"prompt": text, "n_predict": 8, "cache_prompt": false}},
		{"/completion", "pass; reason=slot_chosen", rig.Object{"prompt": text, "n_predict": 8, "id_slot": 0}},
		{"/v1/completions", "pass; reason=several_answers", rig.Object{"prompt": text, "max_tokens": 8, "n": 2}},
		{"/completion", "pass; reason=several_answers", rig.Object{"prompt": []any{text, text}, "n_predict": 8}},
		{"/completion", "pass", rig.Object{"no": "prompt"}},
	} {
		c.body["temperature"] = 0
		got := r.Ask(c.path, c.body)
		want := rig.Ask(t, context.Background(), alone, c.path, c.body)
		if got.Status != want.Status || got.Text != want.Text {
			t.Errorf("%s: %d %q (%s), alone %d %q", c.path, got.Status, got.Text, got.Header, want.Status, want.Text)
		}
		if !strings.HasPrefix(got.Header, c.header) {
			t.Errorf("%s says %q, expected %q", c.path, got.Header, c.header)
		}
	}
	for _, c := range []struct {
		path string
		body rig.Object
	}{
		{"/v1/responses", rig.Object{"input": text, "max_output_tokens": 8, "temperature": 0}},
		{"/v1/messages", rig.Object{"messages": []rig.Object{{"role": "user", "content": text}}, "max_tokens": 8, "temperature": 0}},
	} {
		r.Ask(c.path, c.body)
		r.Saved()
		r.KillServer()
		got := r.Ask(c.path, c.body)
		if got.Status != 200 || !strings.HasPrefix(got.Header, "hit") || got.A.Cached == 0 {
			t.Errorf("%s after a kill: %d, %s, %d tokens reused", c.path, got.Status, got.Header, got.A.Cached)
		}
	}
}

// What is streamed comes through as it is, in the pieces in which it is sent.
func TestStreams(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "4096")
	body := rig.Story("A stream", 6)
	body["stream"] = true
	got := r.Ask("/completion", body)
	pieces := strings.Split(strings.TrimSpace(got.Body), "\n\n")
	if len(pieces) < 10 || !strings.HasPrefix(pieces[0], `data: {`) || !got.A.Known {
		t.Errorf("the stream is %d pieces, figures %+v:\n%s", len(pieces), got.A, got.Body)
	}
}

// Many prompts over one beginning, more at a time than there are slots: what the server clears while a request waits for its turn is not taken
// to be there still.
func TestManyAtOnceOverOnePrompt(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "8192", "-np", "4", "--kv-unified")
	system := rig.Story("You know all stories.", 10)["prompt"].(string)
	r.Ask("/completion", rig.Object{"prompt": system, "n_predict": 4, "temperature": 0})
	r.Saved()
	var wait sync.WaitGroup
	replies := make(chan rig.Reply, 24)
	for worker := range 8 {
		wait.Go(func() {
			for i := range 3 {
				replies <- r.Ask("/completion", rig.Object{"prompt": fmt.Sprintf("%s Cat %d.", system, (worker+3*i)%8), "n_predict": 4, "temperature": 0})
			}
		})
	}
	wait.Wait()
	close(replies)
	computed, asked := 0, 0
	for got := range replies {
		if got.Status != 200 || !got.A.Known {
			t.Fatalf("%+v", got)
		}
		n := 0
		if _, err := fmt.Sscanf(got.Header, "slot; tokens=%d", &n); err == nil && got.A.Cached < n-1 {
			t.Errorf("the answer says %q, and %d tokens were reused", got.Header, got.A.Cached)
		}
		computed += got.A.Prompt
		asked += got.A.Prompt + got.A.Cached
	}
	t.Logf("%d tokens of %d were computed", computed, asked)
	if 4*computed > asked {
		t.Errorf("%d tokens of %d were computed", computed, asked)
	}
}
