package llamaserver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"time"

	"github.com/dormousekv/dormouse/obs/figures"
)

// What was computed once is restored after the server was killed, and the answer is what it was.
func TestAnswerAfterKill(t *testing.T) {
	r := start(t, Options{}, "-c", "4096")
	first := r.ask("/completion", story("Once upon a time", 12))
	if first.status != 200 || !strings.HasPrefix(first.header, "miss") || first.text == "" {
		t.Fatalf("the first answer is %+v", first)
	}
	r.saved()
	r.killServer()
	again := r.ask("/completion", story("Once upon a time", 12))
	if !strings.HasPrefix(again.header, "hit; tokens=") || again.text != first.text {
		t.Errorf("after the kill the answer is %q (%s), expected %q", again.text, again.header, first.text)
	}
	if all := first.a.Cached + first.a.Prompt; again.a.Cached != all-1 {
		t.Errorf("the server reused %d tokens of %d", again.a.Cached, all)
	}
	still := r.ask("/completion", story("Once upon a time", 12))
	if !strings.HasPrefix(still.header, "slot") {
		t.Errorf("of what the slot still has the answer says %s", still.header)
	}
	r.eventually(func() bool { // a request is counted when its client has all of the answer
		return r.front.Figures().Requests[figures.Kind{Outcome: figures.Slot, Reason: figures.ServerCache}] == 1
	})
	r.saved()
	longer := story("Once upon a time", 12)
	longer["prompt"] = longer["prompt"].(string) + first.text + " The end of"
	r.killServer()
	on := r.ask("/completion", longer)
	if want := first.a.Cached + first.a.Prompt; on.a.Cached < want {
		t.Errorf("of a prompt that goes on %d tokens were reused (%s), expected at least %d", on.a.Cached, on.header, want)
	}
}

// Conversations over one system prompt share it, through few slots, with kills of the server and of the front in between. All
// answers are those of a server without a front.
func TestConversationsAreAsAlone(t *testing.T) {
	const conversations, turns = 8, 3
	dir := t.TempDir()
	alone := plain(t, "-c", "4096", "-np", "1")
	r := start(t, Options{Dir: dir}, "-c", "4096", "-np", "2")
	system := story("You know all stories.", 6)["prompt"].(string)
	talks := make([]string, conversations)
	hits := 0
	for turn := range turns {
		for i := range talks {
			if talks[i] == "" {
				talks[i] = system
			}
			talks[i] += fmt.Sprintf(" Cat %d, day %d.", i, turn)
			body := object{"prompt": talks[i], "n_predict": 8, "temperature": 0}
			got := r.ask("/completion", body)
			body["cache_prompt"] = false
			want := ask(t, context.Background(), alone, "/completion", body)
			if got.status != 200 || got.text != want.text {
				t.Fatalf("turn %d of conversation %d: %q (%s), alone %q", turn, i, got.text, got.header, want.text)
			}
			if turn+i > 0 && 10*got.a.Cached < 6*(got.a.Cached+got.a.Prompt) {
				t.Errorf("turn %d of conversation %d: %d tokens were reused, and %d computed (%s)", turn, i, got.a.Cached, got.a.Prompt, got.header)
			}
			if strings.HasPrefix(got.header, "hit") {
				hits++
			}
			talks[i] += got.text
			switch turn*conversations + i {
			case 5, 17:
				r.killServer()
			case 11:
				r.stop()
				r = start(t, Options{Dir: dir}, "-c", "4096", "-np", "2")
			}
		}
	}
	if hits < 3 {
		t.Errorf("%d of %d requests were helped from the store, expected one after each kill at least", hits, conversations*turns)
	}
	r.saved()
	if n := r.front.Figures().Unused; n > 0 {
		t.Errorf("%d tokens were restored for nothing", n)
	}
}

// Many requests at once get an answer each, and no slot works for two.
func TestManyAtOnce(t *testing.T) {
	r := start(t, Options{}, "-c", "8192", "-np", "3")
	var wait sync.WaitGroup
	for i := range 24 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for turn := range 2 {
				got := r.ask("/completion", story(fmt.Sprint("Story ", i%6), 6+2*turn))
				if got.status != 200 || got.text == "" {
					t.Errorf("request %d: %+v", i, got)
				}
			}
		}()
	}
	wait.Wait()
	r.saved()
	f := r.front.Figures()
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
	r := start(t, Options{}, "-c", "8192", "-np", "1")
	gone := 0
	for i := range 6 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(2+15*i)*time.Millisecond)
		body := story(fmt.Sprint("Going ", i), 12)
		body["n_predict"] = 2000
		if got := ask(t, ctx, r.url, "/completion", body); got.status == 0 {
			gone++
		}
		cancel()
	}
	if gone == 0 {
		t.Error("no client went")
	}
	if got := r.ask("/completion", story("Staying", 4)); got.status != 200 || got.text == "" {
		t.Errorf("the next request: %+v", got)
	}
	r.saved()
}

// Every way in gives what the server gives, and says what became of it.
func TestEndpoints(t *testing.T) {
	r := start(t, Options{}, "-c", "4096", "-np", "2")
	alone := plain(t, "-c", "4096", "-np", "2")
	text := story("In every way", 8)["prompt"]
	for _, c := range []struct {
		path, header string
		body         object
	}{
		{"/completion", "miss", object{"prompt": text, "n_predict": 8}},
		{"/completion", "slot", object{"prompt": text, "n_predict": 8}},
		{"/completions", "", object{"prompt": []any{text}, "n_predict": 8}},
		{"/v1/completions", "", object{"prompt": text, "max_tokens": 8}},
		{"/v1/chat/completions", "miss", object{"messages": []object{{"role": "user", "content": text}}, "max_tokens": 8}},
		{"/v1/chat/completions", "slot", object{"messages": []object{{"role": "user", "content": text}}, "max_tokens": 8}},
		{"/completion", "pass; reason=lookup_off", object{"prompt": text, "n_predict": 8, "cache_prompt": false}},
		{"/completion", "pass; reason=slot_chosen", object{"prompt": text, "n_predict": 8, "id_slot": 0}},
		{"/v1/completions", "pass; reason=several_answers", object{"prompt": text, "max_tokens": 8, "n": 2}},
		{"/completion", "pass; reason=several_answers", object{"prompt": []any{text, text}, "n_predict": 8}},
		{"/completion", "pass", object{"no": "prompt"}},
	} {
		c.body["temperature"] = 0
		got := r.ask(c.path, c.body)
		want := ask(t, context.Background(), alone, c.path, c.body)
		if got.status != want.status || got.text != want.text {
			t.Errorf("%s: %d %q (%s), alone %d %q", c.path, got.status, got.text, got.header, want.status, want.text)
		}
		if !strings.HasPrefix(got.header, c.header) {
			t.Errorf("%s says %q, expected %q", c.path, got.header, c.header)
		}
	}
	for _, c := range []struct {
		path string
		body object
	}{
		{"/v1/responses", object{"input": text, "max_output_tokens": 8, "temperature": 0}},
		{"/v1/messages", object{"messages": []object{{"role": "user", "content": text}}, "max_tokens": 8, "temperature": 0}},
	} {
		r.ask(c.path, c.body)
		r.saved()
		r.killServer()
		got := r.ask(c.path, c.body)
		if got.status != 200 || !strings.HasPrefix(got.header, "hit") || got.a.Cached == 0 {
			t.Errorf("%s after a kill: %d, %s, %d tokens reused", c.path, got.status, got.header, got.a.Cached)
		}
	}
}

// What is streamed comes through as it is, in the pieces in which it is sent.
func TestStreams(t *testing.T) {
	r := start(t, Options{}, "-c", "4096")
	body := story("A stream", 6)
	body["stream"] = true
	got := r.ask("/completion", body)
	pieces := strings.Split(strings.TrimSpace(got.body), "\n\n")
	if len(pieces) < 10 || !strings.HasPrefix(pieces[0], `data: {`) || !got.a.Known {
		t.Errorf("the stream is %d pieces, figures %+v:\n%s", len(pieces), got.a, got.body)
	}
}

// Many prompts over one beginning, more at a time than there are slots: what the server clears while a request waits for its turn is not taken
// to be there still.
func TestManyAtOnceOverOnePrompt(t *testing.T) {
	r := start(t, Options{}, "-c", "8192", "-np", "4", "--kv-unified")
	system := story("You know all stories.", 10)["prompt"].(string)
	r.ask("/completion", object{"prompt": system, "n_predict": 4, "temperature": 0})
	r.saved()
	var wait sync.WaitGroup
	replies := make(chan reply, 24)
	for worker := range 8 {
		wait.Go(func() {
			for i := range 3 {
				replies <- r.ask("/completion", object{"prompt": fmt.Sprintf("%s Cat %d.", system, (worker+3*i)%8), "n_predict": 4, "temperature": 0})
			}
		})
	}
	wait.Wait()
	close(replies)
	computed, asked := 0, 0
	for got := range replies {
		if got.status != 200 || !got.a.Known {
			t.Fatalf("%+v", got)
		}
		n := 0
		if _, err := fmt.Sscanf(got.header, "slot; tokens=%d", &n); err == nil && got.a.Cached < n-1 {
			t.Errorf("the answer says %q, and %d tokens were reused", got.header, got.a.Cached)
		}
		computed += got.a.Prompt
		asked += got.a.Prompt + got.a.Cached
	}
	t.Logf("%d tokens of %d were computed", computed, asked)
	if 4*computed > asked {
		t.Errorf("%d tokens of %d were computed", computed, asked)
	}
}
