package llamaserver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
)

// claim is how many tokens an answer says were there, if it says so for certain.
func claim(header string) int {
	_, rest, _ := strings.Cut(header, "; tokens=")
	n, _, _ := strings.Cut(rest, ";")
	v, _ := strconv.Atoi(n)
	return v
}

// Slots that share a cache which is full are emptied by the server: what they held is restored, and nothing is said that is not so.
func TestSlotsThatShareAFullCache(t *testing.T) {
	r := start(t, Options{}, "-c", "512", "-np", "2", "-kvu", "--cache-ram", "0")
	for round := range 3 {
		for _, begin := range []string{"One", "Two"} {
			got := r.ask("/completion", story(begin, 14))
			r.saved()
			if n := claim(got.header); n > got.a.Cached {
				t.Errorf("round %d: %s, and %d tokens were reused", round, got.header, got.a.Cached)
			}
			if round > 0 && got.a.Prompt > 32 {
				t.Errorf("round %d: %d tokens of a stored prompt were computed (%s)", round, got.a.Prompt, got.header)
			}
		}
	}
}

// The header of an answer that is whole says what was reused; that of a stream, which begins before, what is expected.
func TestHeaderSaysWhatWasReused(t *testing.T) {
	r := start(t, Options{}, "-c", "2048", "-np", "1", "--cache-ram", "0")
	body := story("Said", 8)
	stream := story("Said", 8)
	stream["stream"] = true
	r.ask("/completion", body)
	r.saved()
	for _, c := range []struct {
		body  object
		kills bool
		want  string
	}{
		{body, false, "slot; tokens="}, {body, true, "hit; tokens="}, {stream, false, "slot; expected="}, {stream, true, "hit; expected="},
	} {
		if c.kills {
			r.killServer()
		}
		got := r.ask("/completion", c.body)
		if !strings.HasPrefix(got.header, c.want) || strings.Contains(c.want, "tokens") && claim(got.header) != got.a.Cached || got.a.Cached < 100 {
			t.Errorf("%s, expected %s; %d tokens were reused", got.header, c.want, got.a.Cached)
		}
		r.saved()
	}
}

// A server that does not say what its slots hold, and empties them: what was believed of one is not said to be so, nor counted, and of the others
// nothing is believed any more.
func TestBeliefIsDisproved(t *testing.T) {
	slots := t.TempDir()
	model, err := filepath.Abs(stories)
	if err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(plain(t, "-m", model, "-c", "2048", "-np", "2", "--cache-ram", "0", "--slot-save-path", slots))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(base)
	proxy.ModifyResponse = func(resp *http.Response) error { // as a release that says less
		if resp.Request.URL.Path != "/slots" {
			return nil
		}
		var list []map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
			return err
		}
		for _, s := range list {
			delete(s, "n_prompt_tokens")
			s["id_task"] = 1
		}
		b, err := json.Marshal(list)
		resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(string(b))), int64(len(b))
		resp.Header.Set("Content-Length", strconv.Itoa(len(b)))
		return err
	}
	between := httptest.NewServer(proxy)
	t.Cleanup(between.Close)
	r := attachedAt(t, between.URL, slots, &Arguments{KeepsIdle: true})
	direct := &api.Client{Base: base, Client: http.DefaultClient}
	one, two := story("One", 10), story("Two", 10)
	for _, body := range []object{one, two} {
		r.ask("/completion", body)
		r.saved()
	}
	for id := range 2 {
		if err := direct.Erase(context.Background(), id); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.ask("/completion", one); got.header != "miss; reason=not_reused" || got.a.Cached > 1 {
		t.Errorf("of an emptied slot: %s, %d tokens reused", got.header, got.a.Cached)
	}
	if f := r.front.Figures(); f.Count(figures.Hit)+f.Count(figures.Slot) != 0 {
		t.Errorf("%d hits are counted", f.Count(figures.Hit))
	}
	r.saved()
	if got := r.ask("/completion", two); !strings.HasPrefix(got.header, "hit; tokens=") || claim(got.header) != got.a.Cached {
		t.Errorf("after it was disproved: %s, %d tokens reused", got.header, got.a.Cached)
	}
}

// Of slots that ended while a request began in another one, those are forgotten that the server has emptied, and no others: what they hold is saved still.
func TestOnlyEmptiedSlotsAreForgotten(t *testing.T) {
	r := start(t, Options{SaveAfter: time.Hour}, "-c", "2048", "-np", "2")
	r.ask("/completion", story("One", 10))
	s := r.front.servedFor("")
	s.table.Unbusy(t.Context())
	var all kv.Prompt
	for _, x := range s.table.Slots() {
		if len(x.Prompt.Tokens) > 0 {
			all = x.Prompt
		}
	}
	if len(all.Tokens) == 0 {
		t.Fatal("no slot has a prompt")
	}
	sl, err := s.table.Lease(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	s.table.Release(sl)
	if s.look.ForgetEmptied(t.Context(), nil, nil); len(sl.Prompt.Tokens) == 0 || !sl.Unsaved {
		t.Errorf("a slot that has its prompt is forgotten: %d tokens, unsaved %v", len(sl.Prompt.Tokens), sl.Unsaved)
	}
	sl.Working, sl.Prompt.Tokens = true, append(slices.Clone(all.Tokens), all.Tokens...) // its client went before all was computed
	if s.look.ForgetEmptied(t.Context(), nil, nil); len(sl.Prompt.Tokens) == 0 || !sl.Unsaved {
		t.Errorf("what was computed for a client that went is forgotten: %d tokens, unsaved %v", len(sl.Prompt.Tokens), sl.Unsaved)
	}
	sl.Working, sl.Prompt = false, all
	if err := s.api.Erase(t.Context(), sl.ID); err != nil {
		t.Fatal(err)
	}
	if s.look.ForgetEmptied(t.Context(), nil, nil); len(sl.Prompt.Tokens) > 0 || sl.Unsaved {
		t.Errorf("an emptied slot is believed to have %d tokens, unsaved %v", len(sl.Prompt.Tokens), sl.Unsaved)
	}
}

// The scales of a server's adapters may be set by others, and by its sleep.
func TestScalesChangeElsewhere(t *testing.T) {
	dir := t.TempDir()
	model, adapter := filepath.Join(dir, "model.gguf"), filepath.Join(dir, "adapter.gguf")
	write(t, model, string(ggufgen.WithText(ggufgen.LLaMA(1, 2, 64))))
	write(t, adapter, string(ggufgen.LoRA("llama", 7, 0.5, ggufgen.LoRATarget{Name: "blk.0.attn_k.weight", In: 128, Out: 128})))
	slots := t.TempDir()
	base := plain(t, "-m", model, "-c", "2048", "-np", "1", "--lora", adapter, "--slot-save-path", slots)
	r := attachedAt(t, base, slots, &Arguments{})
	tokens := make([]int, 200)
	for i := range tokens {
		tokens[i] = 3 + i*i%50
	}
	body := object{"prompt": tokens, "n_predict": 2, "temperature": 0}
	r.ask("/completion", body)
	r.saved()
	if got := ask(t, context.Background(), base, "/lora-adapters", `[{"id":0,"scale":0.25}]`); got.status != http.StatusOK {
		t.Fatalf("setting the scale: %+v", got)
	}
	got := r.ask("/completion", body)
	if !strings.HasPrefix(got.header, "miss") {
		t.Errorf("with another scale: %s", got.header)
	}
}
