package llamaserver

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
)

// sawtooth is a prompt of so many tokens that models without a vocabulary know, too.
func sawtooth(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 3 + (i*i+i/50)%50
	}
	return out
}

// long are the arguments of a server that takes long prompts, in many small batches.
func long(architecture string) []string {
	return []string{"-c", "24576", "-b", "32", "-ub", "32", "--override-kv", architecture + ".context_length=int:24576"}
}

// leave asks, and goes when the server has computed so many tokens of the prompt.
func (r *rig) leave(body object, after int) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan reply)
	go func() { done <- ask(r.t, ctx, r.url, "/completion", body) }()
	direct := r.front.apiOf("")
	r.eventually(func() bool {
		select {
		case got := <-done:
			r.t.Fatalf("it was answered too soon: %d %s %s", got.status, got.header, got.body)
		default:
		}
		var list []struct {
			Processing bool `json:"is_processing"`
			Tokens     int  `json:"n_prompt_tokens"`
		}
		if direct.Call(context.Background(), "/slots", nil, nil, &list) != nil {
			return false
		}
		for _, st := range list {
			if st.Processing && st.Tokens >= after {
				return true
			}
		}
		return false
	})
	cancel()
	if got := <-done; got.a.Known {
		r.t.Fatalf("the client did not go: %d %s", got.status, got.header)
	}
}

// Whoever gives up on a long prompt finds what was computed of it the next time: after the server was killed, and in whichever kind of cache.
func TestPromptThatWasGivenUp(t *testing.T) {
	for _, c := range []struct {
		name   string
		model  []byte
		args   []string
		stream bool
	}{
		{"attention", nil, long("llama"), false},
		{"streamed", nil, long("llama"), true},
		{"several slots", nil, append(long("llama"), "-np", "3"), false},
		{"windows", ggufgen.WithText(ggufgen.Gemma3(1, 6, 32, 64)), long("gemma3"), false},
		{"hybrid", ggufgen.WithText(ggufgen.FalconH1(1, 2)), long("falcon-h1"), false},
		{"recurrent", ggufgen.WithText(ggufgen.Mamba(1, 2)), long("mamba"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"-np", "1"}, c.args...)
			if c.model != nil {
				path := filepath.Join(t.TempDir(), "model.gguf")
				write(t, path, string(c.model))
				args = append(args, "-m", path)
			}
			r := start(t, Options{}, args...)
			body := object{"prompt": sawtooth(3000), "n_predict": 4, "temperature": 0, "stream": c.stream}
			r.leave(body, 800)
			r.saved()
			r.killServer()
			delete(body, "stream")
			got := r.ask("/completion", body)
			if !strings.HasPrefix(got.header, "hit") || got.a.Cached < 750 || got.a.Cached+got.a.Prompt != 3000 {
				t.Errorf("of the prompt that was given up %d tokens were reused, and %d computed (%s)", got.a.Cached, got.a.Prompt, got.header)
			}
			r.saved()
			r.killServer()
			if again := r.ask("/completion", body); again.text != got.text {
				t.Errorf("the answer is %q, and from the whole prompt %q", got.text, again.text)
			}
		})
	}
}

// A batch that takes longer than anybody's patience is waited for: what the slot holds is known only then.
func TestGivenUpInALongBatch(t *testing.T) {
	smol := os.Getenv("DORMOUSE_LLAMA_SMOL")
	if smol == "" || testing.Short() {
		t.Skip("SKIPPED: a real model is needed, and some time")
	}
	r := start(t, Options{}, "-m", smol, "-c", "4096", "-np", "1", "-b", "2048", "-ub", "2048")
	var text strings.Builder
	for i := range 120 {
		fmt.Fprintf(&text, "Line %d of the long report is about sheep number %d. ", i, i*7)
	}
	body := object{"prompt": text.String(), "n_predict": 2, "temperature": 0}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if got := ask(t, ctx, r.url, "/completion", body); got.status != 0 {
		t.Fatalf("it was answered: %+v", got)
	}
	r.saved()
	r.killServer()
	got := r.ask("/completion", body)
	if !strings.HasPrefix(got.header, "hit") || got.a.Cached < 2000 {
		t.Errorf("%d tokens were reused, and %d computed (%s)", got.a.Cached, got.a.Prompt, got.header)
	}
}

// Before the server has said how far it came, nobody is told that the slot has the whole prompt.
func TestGivenUpSlotClaimsNoMore(t *testing.T) {
	r := start(t, Options{}, append(long("llama"), "-np", "1")...)
	body := object{"prompt": sawtooth(3000), "n_predict": 4, "temperature": 0}
	r.leave(body, 600)
	got := r.ask("/completion", body)
	claimed := 0
	fmt.Sscanf(got.header, "slot; tokens=%d", &claimed)
	if claimed < 550 || got.a.Cached < claimed-1 {
		t.Errorf("%d tokens were reused (%s)", got.a.Cached, got.header)
	}
}

// Rows that were shifted are never stored: of a client that went, nobody knows whether the answer had filled the context by then, unless the
// request bounds it.
func TestGivenUpWhereRowsAreShifted(t *testing.T) {
	r := start(t, Options{}, append(long("llama"), "-np", "1", "--context-shift")...)
	r.leave(object{"prompt": sawtooth(3000), "n_predict": -1}, 600)
	r.saved()
	if got := r.ask("/completion", object{"prompt": sawtooth(3000), "n_predict": 2}); !strings.HasPrefix(got.header, "miss; reason=nothing_stored") {
		t.Errorf("of a request without bounds: %s", got.header)
	}
	r.saved()
	other := sawtooth(3000)
	other[3] = 60
	r.leave(object{"prompt": other, "n_predict": 100}, 600)
	r.saved()
	r.killServer()
	if got := r.ask("/completion", object{"prompt": other, "n_predict": 2}); !strings.HasPrefix(got.header, "hit") || got.a.Cached < 550 {
		t.Errorf("of a bounded request %d tokens were reused (%s)", got.a.Cached, got.header)
	}
}

// Clients that go before the server has begun say nothing of how prompts are rendered.
func TestGoneBeforeItBegan(t *testing.T) {
	r := start(t, Options{SaveAfter: time.Millisecond}, "-c", "4096", "-np", "1")
	r.ask("/completion", story("Somebody was here", 12))
	for i := range 12 {
		ctx, cancel := context.WithCancel(context.Background())
		slow := httptest.NewServer(r.front)
		go func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			cancel()
		}()
		ask(t, ctx, slow.URL, "/completion", story(fmt.Sprint("Quickly gone ", i), 12))
		cancel()
		slow.Close()
	}
	r.saved()
	if m := r.front.servedFor("").status(); len(m.Resting) > 0 {
		t.Errorf("it rests: %+v", m.Resting)
	}
	if got := r.ask("/completion", story("Staying", 12)); strings.HasPrefix(got.header, "pass") {
		t.Errorf("afterwards: %s", got.header)
	}
}
