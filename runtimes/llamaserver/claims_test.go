package llamaserver_test

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
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// Slots that share a cache which is full are emptied by the server: what they held is restored, and nothing is said that is not so.
func TestSlotsThatShareAFullCache(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "512", "-np", "2", "-kvu", "--cache-ram", "0")
	for round := range 3 {
		for _, begin := range []string{"One", "Two"} {
			got := r.Ask("/completion", rig.Story(begin, 14))
			r.Saved()
			if n := rig.Claim(got.Header); n > got.A.Cached {
				t.Errorf("round %d: %s, and %d tokens were reused", round, got.Header, got.A.Cached)
			}
			if round > 0 && got.A.Prompt > 32 {
				t.Errorf("round %d: %d tokens of a stored prompt were computed (%s)", round, got.A.Prompt, got.Header)
			}
		}
	}
}

// The header of an answer that is whole says what was reused; that of a stream, which begins before, what is expected.
func TestHeaderSaysWhatWasReused(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "2048", "-np", "1", "--cache-ram", "0")
	body := rig.Story("Said", 8)
	stream := rig.Story("Said", 8)
	stream["stream"] = true
	r.Ask("/completion", body)
	r.Saved()
	for _, c := range []struct {
		body  rig.Object
		kills bool
		want  string
	}{
		{body, false, "slot; tokens="}, {body, true, "hit; tokens="}, {stream, false, "slot; expected="}, {stream, true, "hit; expected="},
	} {
		if c.kills {
			r.KillServer()
		}
		got := r.Ask("/completion", c.body)
		if !strings.HasPrefix(got.Header, c.want) || strings.Contains(c.want, "tokens") && rig.Claim(got.Header) != got.A.Cached || got.A.Cached < 100 {
			t.Errorf("%s, expected %s; %d tokens were reused", got.Header, c.want, got.A.Cached)
		}
		r.Saved()
	}
}

// A server that does not say what its slots hold, and empties them: what was believed of one is not said to be so, nor counted, and of the others
// nothing is believed any more.
func TestBeliefIsDisproved(t *testing.T) {
	slots := t.TempDir()
	model, err := filepath.Abs(rig.Stories)
	if err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(rig.Plain(t, "-m", model, "-c", "2048", "-np", "2", "--cache-ram", "0", "--slot-save-path", slots))
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
	r := attachedAt(t, between.URL, slots, &llamaserver.Arguments{KeepsIdle: true})
	direct := &api.Client{Base: base, Client: http.DefaultClient}
	one, two := rig.Story("One", 10), rig.Story("Two", 10)
	for _, body := range []rig.Object{one, two} {
		r.Ask("/completion", body)
		r.Saved()
	}
	for id := range 2 {
		if err := direct.Erase(context.Background(), id); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.Ask("/completion", one); got.Header != "miss; reason=not_reused" || got.A.Cached > 1 {
		t.Errorf("of an emptied slot: %s, %d tokens reused", got.Header, got.A.Cached)
	}
	if f := r.Front.Figures(); f.Count(figures.Hit)+f.Count(figures.Slot) != 0 {
		t.Errorf("%d hits are counted", f.Count(figures.Hit))
	}
	r.Saved()
	if got := r.Ask("/completion", two); !strings.HasPrefix(got.Header, "hit; tokens=") || rig.Claim(got.Header) != got.A.Cached {
		t.Errorf("after it was disproved: %s, %d tokens reused", got.Header, got.A.Cached)
	}
}

// Of slots that ended while a request began in another one, those are forgotten that the server has emptied, and no others: what they hold is saved still.
func TestOnlyEmptiedSlotsAreForgotten(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{SaveAfter: time.Hour}, "-c", "2048", "-np", "2")
	r.Ask("/completion", rig.Story("One", 10))
	look := r.Front.Look()
	table := look.Table
	table.Unbusy(t.Context())
	var all kv.Prompt
	for _, x := range table.Slots() {
		if len(x.Prompt.Tokens) > 0 {
			all = x.Prompt
		}
	}
	if len(all.Tokens) == 0 {
		t.Fatal("no slot has a prompt")
	}
	sl, err := table.Lease(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	table.Release(sl)
	if look.ForgetEmptied(t.Context(), nil, nil); len(sl.Prompt.Tokens) == 0 || !sl.Unsaved {
		t.Errorf("a slot that has its prompt is forgotten: %d tokens, unsaved %v", len(sl.Prompt.Tokens), sl.Unsaved)
	}
	sl.Working, sl.Prompt.Tokens = true, append(slices.Clone(all.Tokens), all.Tokens...) // its client went before all was computed
	if look.ForgetEmptied(t.Context(), nil, nil); len(sl.Prompt.Tokens) == 0 || !sl.Unsaved {
		t.Errorf("what was computed for a client that went is forgotten: %d tokens, unsaved %v", len(sl.Prompt.Tokens), sl.Unsaved)
	}
	sl.Working, sl.Prompt = false, all
	if err := look.API.Erase(t.Context(), sl.ID); err != nil {
		t.Fatal(err)
	}
	if look.ForgetEmptied(t.Context(), nil, nil); len(sl.Prompt.Tokens) > 0 || sl.Unsaved {
		t.Errorf("an emptied slot is believed to have %d tokens, unsaved %v", len(sl.Prompt.Tokens), sl.Unsaved)
	}
}

// The scales of a server's adapters may be set by others, and by its sleep.
func TestScalesChangeElsewhere(t *testing.T) {
	dir := t.TempDir()
	model, adapter := filepath.Join(dir, "model.gguf"), filepath.Join(dir, "adapter.gguf")
	rig.WriteFile(t, model, string(ggufgen.WithText(ggufgen.LLaMA(1, 2, 64))))
	rig.WriteFile(t, adapter, string(ggufgen.LoRA("llama", 7, 0.5, ggufgen.LoRATarget{Name: "blk.0.attn_k.weight", In: 128, Out: 128})))
	slots := t.TempDir()
	base := rig.Plain(t, "-m", model, "-c", "2048", "-np", "1", "--lora", adapter, "--slot-save-path", slots)
	r := attachedAt(t, base, slots, &llamaserver.Arguments{})
	tokens := make([]int, 200)
	for i := range tokens {
		tokens[i] = 3 + i*i%50
	}
	body := rig.Object{"prompt": tokens, "n_predict": 2, "temperature": 0}
	r.Ask("/completion", body)
	r.Saved()
	if got := rig.Ask(t, context.Background(), base, "/lora-adapters", `[{"id":0,"scale":0.25}]`); got.Status != http.StatusOK {
		t.Fatalf("setting the scale: %+v", got)
	}
	got := r.Ask("/completion", body)
	if !strings.HasPrefix(got.Header, "miss") {
		t.Errorf("with another scale: %s", got.Header)
	}
}
