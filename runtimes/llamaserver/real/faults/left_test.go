package faults_test

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
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// Whoever gives up on a long prompt finds what was computed of it the next time: after the server was killed, and in whichever kind of cache.
func TestPromptThatWasGivenUp(t *testing.T) {
	for _, c := range []struct {
		name   string
		model  []byte
		args   []string
		stream bool
	}{
		{"attention", nil, rig.LongContext("llama"), false},
		{"streamed", nil, rig.LongContext("llama"), true},
		{"several slots", nil, append(rig.LongContext("llama"), "-np", "3"), false},
		{"windows", ggufgen.WithText(ggufgen.Gemma3(1, 6, 32, 64)), rig.LongContext("gemma3"), false},
		{"hybrid", ggufgen.WithText(ggufgen.FalconH1(1, 2)), rig.LongContext("falcon-h1"), false},
		{"recurrent", ggufgen.WithText(ggufgen.Mamba(1, 2)), rig.LongContext("mamba"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"-np", "1"}, c.args...)
			if c.model != nil {
				path := filepath.Join(t.TempDir(), "model.gguf")
				rig.WriteFile(t, path, string(c.model))
				args = append(args, "-m", path)
			}
			r := rig.Start(t, llamaserver.Options{}, args...)
			body := rig.Object{"prompt": rig.Sawtooth(3000), "n_predict": 4, "temperature": 0, "stream": c.stream}
			r.Leave(body, 800)
			r.Saved()
			r.KillServer()
			delete(body, "stream")
			got := r.Ask("/completion", body)
			if !strings.HasPrefix(got.Header, "hit") || got.A.Cached < 750 || got.A.Cached+got.A.Prompt != 3000 {
				t.Errorf("of the prompt that was given up %d tokens were reused, and %d computed (%s)", got.A.Cached, got.A.Prompt, got.Header)
			}
			r.Saved()
			r.KillServer()
			if again := r.Ask("/completion", body); again.Text != got.Text {
				t.Errorf("the answer is %q, and from the whole prompt %q", got.Text, again.Text)
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
	r := rig.Start(t, llamaserver.Options{}, "-m", smol, "-c", "4096", "-np", "1", "-b", "2048", "-ub", "2048")
	var text strings.Builder
	for i := range 120 {
		fmt.Fprintf(&text, "Line %d of the long report is about sheep number %d. ", i, i*7)
	}
	body := rig.Object{"prompt": text.String(), "n_predict": 2, "temperature": 0}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if got := rig.Ask(t, ctx, r.URL, "/completion", body); got.Status != 0 {
		t.Fatalf("it was answered: %+v", got)
	}
	r.Saved()
	r.KillServer()
	got := r.Ask("/completion", body)
	if !strings.HasPrefix(got.Header, "hit") || got.A.Cached < 2000 {
		t.Errorf("%d tokens were reused, and %d computed (%s)", got.A.Cached, got.A.Prompt, got.Header)
	}
}

// Before the server has said how far it came, nobody is told that the slot has the whole prompt.
func TestGivenUpSlotClaimsNoMore(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, append(rig.LongContext("llama"), "-np", "1")...)
	body := rig.Object{"prompt": rig.Sawtooth(3000), "n_predict": 4, "temperature": 0}
	r.Leave(body, 600)
	got := r.Ask("/completion", body)
	claimed := 0
	fmt.Sscanf(got.Header, "slot; tokens=%d", &claimed)
	if claimed < 550 || got.A.Cached < claimed-1 {
		t.Errorf("%d tokens were reused (%s)", got.A.Cached, got.Header)
	}
}

// Rows that were shifted are never stored: of a client that went, nobody knows whether the answer had filled the context by then, unless the
// request bounds it.
func TestGivenUpWhereRowsAreShifted(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, append(rig.LongContext("llama"), "-np", "1", "--context-shift")...)
	r.Leave(rig.Object{"prompt": rig.Sawtooth(3000), "n_predict": -1}, 600)
	r.Saved()
	if got := r.Ask("/completion", rig.Object{"prompt": rig.Sawtooth(3000), "n_predict": 2}); !strings.HasPrefix(got.Header, "miss; reason=nothing_stored") {
		t.Errorf("of a request without bounds: %s", got.Header)
	}
	r.Saved()
	other := rig.Sawtooth(3000)
	other[3] = 60
	r.Leave(rig.Object{"prompt": other, "n_predict": 100}, 600)
	r.Saved()
	r.KillServer()
	if got := r.Ask("/completion", rig.Object{"prompt": other, "n_predict": 2}); !strings.HasPrefix(got.Header, "hit") || got.A.Cached < 550 {
		t.Errorf("of a bounded request %d tokens were reused (%s)", got.A.Cached, got.Header)
	}
}

// Clients that go before the server has begun say nothing of how prompts are rendered.
func TestGoneBeforeItBegan(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{SaveAfter: time.Millisecond}, "-c", "4096", "-np", "1")
	r.Ask("/completion", rig.Story("Somebody was here", 12))
	for i := range 12 {
		ctx, cancel := context.WithCancel(context.Background())
		slow := httptest.NewServer(r.Front)
		go func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			cancel()
		}()
		rig.Ask(t, ctx, slow.URL, "/completion", rig.Story(fmt.Sprint("Quickly gone ", i), 12))
		cancel()
		slow.Close()
	}
	r.Saved()
	if m := r.Model(); len(m.Resting) > 0 {
		t.Errorf("it rests: %+v", m.Resting)
	}
	if got := r.Ask("/completion", rig.Story("Staying", 12)); strings.HasPrefix(got.Header, "pass") {
		t.Errorf("afterwards: %s", got.Header)
	}
}
