package llamaserver_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// Rows that were computed with one scale of an adapter are not those of another.
func TestAdapters(t *testing.T) {
	dir := t.TempDir()
	model, adapter := filepath.Join(dir, "model.gguf"), filepath.Join(dir, "adapter.gguf")
	rig.WriteFile(t, model, string(ggufgen.WithText(ggufgen.LLaMA(1, 2, 64))))
	rig.WriteFile(t, adapter, string(ggufgen.LoRA("llama", 7, 0.5, ggufgen.LoRATarget{Name: "blk.0.attn_k.weight", In: 128, Out: 128})))
	r := rig.Start(t, llamaserver.Options{}, "-c", "2048", "-np", "1", "-m", model, "--lora", adapter)
	tokens := make([]int, 200)
	for i := range tokens {
		tokens[i] = 3 + i*i%50
	}
	ask := func(lora string) rig.Reply {
		t.Helper()
		body := fmt.Sprintf(`{"prompt":%s,"n_predict":2,"temperature":0%s}`, strings.ReplaceAll(fmt.Sprint(tokens), " ", ","), lora)
		got := r.Ask("/completion", body)
		if got.Status != 200 {
			t.Fatalf("%s: %d %s", lora, got.Status, got.Body)
		}
		r.Saved()
		r.Front.EraseSlots(context.Background())
		return got
	}
	full, half, off := "", `,"lora":[{"id":0,"scale":0.5}]`, `,"lora":[{"id":0,"scale":0}]`
	for _, c := range []struct{ lora, want string }{
		{full, "miss"}, {half, "miss"}, {off, "miss"}, {full, "hit"}, {half, "hit"}, {`,"lora":[{"id":0,"scale":1}]`, "hit"}, {`,"lora":[{"id":0,"scale":0}]`, "hit"},
		{`,"lora":"x"`, "pass"}, {`,"lora":[]`, "pass"},
	} {
		if c.want == "pass" {
			if got := r.Ask("/completion", `{"prompt":"a"`+c.lora+`}`); !strings.HasPrefix(got.Header, c.want) {
				t.Errorf("%s: %s, expected %s", c.lora, got.Header, c.want)
			}
			continue
		}
		if got := ask(c.lora); !strings.HasPrefix(got.Header, c.want) {
			t.Errorf("%s: %s, expected %s", c.lora, got.Header, c.want)
		}
	}
	// The scale of all requests is changed.
	if got := r.Ask("/lora-adapters", `[{"id":0,"scale":0.25}]`); got.Status != 200 {
		t.Fatalf("setting the scale: %+v", got)
	}
	r.Settled()
	if got := r.Ask("/completion", fmt.Sprintf(`{"prompt":%s,"n_predict":2}`, strings.ReplaceAll(fmt.Sprint(tokens), " ", ","))); !strings.HasPrefix(got.Header, "miss") {
		t.Errorf("with another scale for all: %s, expected a miss", got.Header)
	}
}
