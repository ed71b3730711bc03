package faults_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// A stream that breaks off in the middle, because its client goes or its server is killed, ends that request alone.
func TestStreamsBreakOff(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "4096", "-np", "2")
	for _, passes := range []bool{false, true} {
		body := rig.Story("Breaking off", 6)
		body["n_predict"] = 400
		if passes {
			body["cache_prompt"] = false
		}
		leave, _ := r.Stream(body)
		leave()
		_, rest := r.Stream(body)
		if err := r.Server.Signal(os.Kill); err != nil {
			t.Fatal(err)
		}
		for err := error(nil); err == nil; {
			_, err = rest.ReadString('\n')
		}
		r.Settled()
		if got := r.UntilAnswered("/completion", rig.Story("Breaking off", 6)); got.Text == "" {
			t.Errorf("afterwards: %+v", got)
		}
	}
}

// A request that the front does not guide, and that the server puts into a slot as soon as its request has ended, is no sign that prompts
// are rendered in another way.
func TestForeignRequestTakesASlot(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{SaveAfter: 50 * time.Millisecond}, "-c", "4096", "-np", "1")
	body := rig.Story("Mine", 8)
	body["n_predict"] = 200
	_, rest := r.Stream(body)
	foreign := make(chan rig.Reply)
	go func() {
		body := rig.Story("Of somebody else", 8)
		body["cache_prompt"], body["n_predict"] = false, 300
		foreign <- r.Ask("/completion", body)
	}()
	for err := error(nil); err == nil; {
		_, err = rest.ReadString('\n')
	}
	if got := <-foreign; got.Text == "" {
		t.Errorf("the foreign request: %+v", got)
	}
	r.Saved()
	if got := r.Ask("/completion", rig.Story("Mine again", 8)); !strings.HasPrefix(got.Header, "miss") {
		t.Errorf("afterwards the endpoint says %q", got.Header)
	}
}

// A field that is null says nothing: the slot is the front's to choose.
func TestNullSaysNothing(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "4096", "-np", "2")
	ask := func(begin string, same int) (slot int) {
		t.Helper()
		body := rig.Story(begin, same)
		body["prompt"] = body["prompt"].(string) + " And the cat sat on the mat, of course."
		body["id_slot"], body["cache_prompt"] = nil, nil
		got := r.Ask("/completion", body)
		var v struct {
			Slot int `json:"id_slot"`
		}
		if err := json.Unmarshal([]byte(got.Body), &v); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(got.Header, "pass") {
			t.Errorf("%s: %s", begin, got.Header)
		}
		r.Saved()
		return v.Slot
	}
	first, second := ask("One", 1), ask("Other", 6)
	if first == second {
		t.Errorf("two conversations in slot %d", first)
	}
	// The server by itself would choose the slot with which the prompt has a little in common.
	body := rig.Story("Other", 2)["prompt"].(string)
	if third := ask(body, 0); third != first {
		t.Errorf("a third conversation was answered in slot %d, which belongs to the second", third)
	}
}

// A request that the server refuses leaves its slot as it was, and what it held is stored all the same.
func TestRefusedRequestLeavesTheSlot(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{SaveAfter: 2 * time.Second}, "-c", "4096", "-np", "1", "--cache-ram", "0")
	first := r.Ask("/completion", rig.Story("Kept", 8))
	bad := rig.Story("Kept", 9)
	bad["grammar"] = "root ::= ("
	if got := r.Ask("/completion", bad); got.Status != http.StatusBadRequest {
		t.Fatalf("a grammar that is none: %+v", got)
	}
	slot := llamaserver.SlotStatus{Busy: true}
	r.Eventually(func() bool { slot = r.Model().Slots[0]; return !slot.Busy })
	if n := first.A.Cached + first.A.Prompt; slot.Tokens != n || !slot.Unsaved {
		t.Errorf("after a request that was refused, the slot is %+v, expected %d tokens, unsaved", slot, n)
	}
	r.Saved()
	r.KillServer()
	if got := r.Ask("/completion", rig.Story("Kept", 8)); !strings.HasPrefix(got.Header, "hit") {
		t.Errorf("what was computed before it is %s", got.Header)
	}
}

// No connection to the server is kept: each would hold one of its few threads, in whose place others wait for seconds.
func TestConnectionsAreNotKept(t *testing.T) {
	kept := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.Close {
			kept <- r.URL.Path
		}
		if q := r.URL.RawQuery; r.URL.Path == "/v1/models" && q != "a=b;c&%zz" {
			kept <- "another query: " + q
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	f, err := llamaserver.New(u, &llamaserver.Arguments{}, llamaserver.Options{Dir: filepath.Join(t.TempDir(), "store")})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(f)
	rig.Ask(t, context.Background(), web.URL, "/completion", rig.Story("Short", 1))
	resp, err := http.Get(web.URL + "/v1/models?a=b;c&%zz") // what Go does not understand goes on as it is
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	web.Close()
	if err := f.Close(context.Background()); err != nil {
		t.Error(err)
	}
	close(kept)
	for what := range kept {
		t.Error(what)
	}
}

// What a request computed whose client was sent away, because the front ends, is saved.
func TestCloseSavesWhatIsAtWork(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	r := rig.Start(t, llamaserver.Options{Dir: dir, SaveAfter: time.Hour}, "-c", "4096", "-np", "1")
	body := rig.Story("To the end", 10)
	body["n_predict"] = 250
	leave, _ := r.Stream(body)
	leave()
	r.Stop()
	r = rig.Start(t, llamaserver.Options{Dir: dir}, "-c", "4096", "-np", "1")
	if got := r.Ask("/completion", rig.Story("To the end", 10)); !strings.HasPrefix(got.Header, "hit") {
		t.Errorf("afterwards: %s", got.Header)
	}
}

// A server that is stopped before it is started says so.
func TestStoppedBeforeStarted(t *testing.T) {
	a, err := llamaserver.ParseArguments([]string{rig.Program(t), "-m", rig.Stories}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := llamaserver.NewProcess(a, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.TempDir(), func() {}); err == nil {
		t.Error("it runs")
	}
}
