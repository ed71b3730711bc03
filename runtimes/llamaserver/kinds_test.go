package llamaserver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// Every kind of cache comes back after a kill: at the end of what was computed, and where another conversation departs.
func TestKindsOfCaches(t *testing.T) {
	for _, c := range []struct {
		name  string
		model []byte
		args  []string
		// departs says that a prompt which goes on differently before the end is helped, too.
		departs bool
	}{
		{"attention", nil, nil, true},
		{"quantized", ggufgen.WithText(ggufgen.LLaMA(1, 2, 64)), []string{"-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"}, true},
		{"without flash attention", nil, []string{"-fa", "off"}, true},
		{"streams", nil, []string{"--no-kv-unified"}, true},
		{"slots keep", nil, []string{"--cache-ram", "0"}, true},
		{"experts", ggufgen.WithText(ggufgen.Mixtral(1, 2, 64)), nil, true},
		{"windows", ggufgen.WithText(ggufgen.Gemma3(1, 6, 32, 64)), nil, false},
		{"latents", ggufgen.WithText(ggufgen.DeepSeek2(1, 2)), nil, true},
		{"hybrid", ggufgen.WithText(ggufgen.FalconH1(1, 2)), nil, false},
		{"recurrent", ggufgen.WithText(ggufgen.Mamba(1, 2)), nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"-c", "2048", "-np", "2"}, c.args...)
			if c.model != nil {
				path := filepath.Join(t.TempDir(), "model.gguf")
				if err := os.WriteFile(path, c.model, 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "-m", path)
			}
			r := rig.Start(t, llamaserver.Options{}, args...)
			tokens := make([]int, 300)
			for i := range tokens {
				tokens[i] = 3 + i*i%50
			}
			body := rig.Object{"prompt": tokens, "n_predict": 4, "temperature": 0}
			if got := r.Ask("/completion", body); got.Status != 200 || !strings.HasPrefix(got.Header, "miss") {
				t.Fatalf("the first answer is %d %s %s", got.Status, got.Header, got.Body)
			}
			r.Saved()
			soil(r)
			r.KillServer()
			body["prompt"] = append(tokens[:300:300], 7, 8, 9)
			got := r.Ask("/completion", body)
			if !strings.HasPrefix(got.Header, "hit") || got.A.Cached < 290 {
				t.Errorf("of a prompt that goes on %d tokens were reused (%s)", got.A.Cached, got.Header)
			}
			r.Saved()
			r.KillServer()
			body["prompt"] = append(tokens[:200:200], 7, 8, 9)
			got = r.Ask("/completion", body)
			if c.departs && (!strings.HasPrefix(got.Header, "hit") || got.A.Cached < 200) {
				t.Errorf("of a prompt that departs %d tokens were reused (%s)", got.A.Cached, got.Header)
			}
			r.Saved()
			if n := r.Front.Figures().Unused; n > 0 {
				t.Errorf("%d tokens were restored for nothing", n)
			}
		})
	}
}

// Releases before 0.7.0 want a row more of a sliding window than they save, or a checkpoint: the front finds out once, and remembers it.
func TestWindowsOfAnOlderServer(t *testing.T) {
	program := os.Getenv("DORMOUSE_LLAMA_SERVER_OTHER")
	if program == "" {
		t.Skip("SKIPPED: no older llama-server: run tests/llama/server.sh and set DORMOUSE_LLAMA_SERVER_OTHER to what it prints")
	}
	t.Setenv("DORMOUSE_LLAMA_SERVER", program)
	model := filepath.Join(t.TempDir(), "model.gguf")
	rig.WriteFile(t, model, string(ggufgen.WithText(ggufgen.Gemma3(1, 6, 32, 64))))
	store := filepath.Join(t.TempDir(), "store")
	asked := func(r *rig.Rig, end ...int) rig.Reply {
		tokens := make([]int, 300, 310)
		for i := range tokens {
			tokens[i] = 3 + i*i%50
		}
		return r.Ask("/completion", rig.Object{"prompt": append(tokens, end...), "n_predict": 8, "temperature": 0})
	}
	t.Run("finds out", func(t *testing.T) {
		r := rig.Start(t, llamaserver.Options{Dir: store}, "-c", "2048", "-np", "1", "-m", model)
		asked(r)
		r.Saved()
		r.KillServer()
		asked(r, 7, 8, 9) // restored for nothing
		r.Saved()
	})
	t.Run("remembers", func(t *testing.T) {
		r := rig.Start(t, llamaserver.Options{Dir: store}, "-c", "2048", "-np", "1", "-m", model)
		got := asked(r, 9, 8, 7)
		r.URL = rig.Plain(t, "-c", "2048", "-np", "1", "-m", model)
		if alone := asked(r, 9, 8, 7); alone.Text != got.Text {
			t.Errorf("the answer is %q, alone %q", got.Text, alone.Text)
		}
		if !strings.HasPrefix(got.Header, "hit") || got.A.Cached < 290 {
			t.Errorf("%d tokens were reused (%s)", got.A.Cached, got.Header)
		}
	})
}
