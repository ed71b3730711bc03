package llamaserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
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
			r := start(t, Options{}, args...)
			tokens := make([]int, 300)
			for i := range tokens {
				tokens[i] = 3 + i*i%50
			}
			body := object{"prompt": tokens, "n_predict": 4, "temperature": 0}
			if got := r.ask("/completion", body); got.status != 200 || !strings.HasPrefix(got.header, "miss") {
				t.Fatalf("the first answer is %d %s %s", got.status, got.header, got.body)
			}
			r.saved()
			r.soil()
			r.killServer()
			body["prompt"] = append(tokens[:300:300], 7, 8, 9)
			got := r.ask("/completion", body)
			if !strings.HasPrefix(got.header, "hit") || got.a.cached < 290 {
				t.Errorf("of a prompt that goes on %d tokens were reused (%s)", got.a.cached, got.header)
			}
			r.saved()
			r.killServer()
			body["prompt"] = append(tokens[:200:200], 7, 8, 9)
			got = r.ask("/completion", body)
			if c.departs && (!strings.HasPrefix(got.header, "hit") || got.a.cached < 200) {
				t.Errorf("of a prompt that departs %d tokens were reused (%s)", got.a.cached, got.header)
			}
			r.saved()
			if n := r.front.Figures().Unused; n > 0 {
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
	write(t, model, string(ggufgen.WithText(ggufgen.Gemma3(1, 6, 32, 64))))
	store := filepath.Join(t.TempDir(), "store")
	asked := func(r *rig, end ...int) reply {
		tokens := make([]int, 300, 310)
		for i := range tokens {
			tokens[i] = 3 + i*i%50
		}
		return r.ask("/completion", object{"prompt": append(tokens, end...), "n_predict": 8, "temperature": 0})
	}
	t.Run("finds out", func(t *testing.T) {
		r := start(t, Options{Dir: store}, "-c", "2048", "-np", "1", "-m", model)
		asked(r)
		r.saved()
		r.killServer()
		asked(r, 7, 8, 9) // restored for nothing
		r.saved()
	})
	t.Run("remembers", func(t *testing.T) {
		r := start(t, Options{Dir: store}, "-c", "2048", "-np", "1", "-m", model)
		got := asked(r, 9, 8, 7)
		r.url = plain(t, "-c", "2048", "-np", "1", "-m", model)
		if alone := asked(r, 9, 8, 7); alone.text != got.text {
			t.Errorf("the answer is %q, alone %q", got.text, alone.text)
		}
		if !strings.HasPrefix(got.header, "hit") || got.a.cached < 290 {
			t.Errorf("%d tokens were reused (%s)", got.a.cached, got.header)
		}
	})
}
