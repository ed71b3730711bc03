package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// story is what the examples say with -json.
type story struct {
	PromptTokens int     `json:"prompt_tokens"`
	ReusedTokens int     `json:"reused_tokens"`
	ColdMillis   float64 `json:"cold_ttft_ms"` // open an empty store, evaluate the prompt, first token
	WarmMillis   float64 `json:"warm_ttft_ms"` // open the store, restore, evaluate the rest, first token
}

// firstToken is how much sooner a prompt's first token comes when its rows are restored. A real model has its cold and warm
// time where the environment names one; else the small transformer of warmstart, which needs nothing.
func firstToken(r *run) error {
	const name = "ttft_ratio"
	lib, model := os.Getenv("DORMOUSE_LLAMA_LIB"), os.Getenv("DORMOUSE_LLAMA_MODEL")
	program := "warmstart"
	if lib != "" && model != "" {
		program = "llamachat"
	}
	dir, err := r.folder("ttft")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, program)
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/dormousekv/dormouse/examples/"+program).CombinedOutput(); err != nil {
		r.skip(name, "go build of examples/%s: %v: %s", program, err, bytes.TrimSpace(out))
		return nil
	}
	args := []string{"-json", "-tokens", fmt.Sprint(r.size.storyTokens), "-continue", fmt.Sprint(r.size.storyAnswer)}
	if program == "llamachat" {
		text := filepath.Join(dir, "prompt.txt")
		if err := os.WriteFile(text, []byte(phrases(r.size.storyPhrases)), 0o600); err != nil {
			return err
		}
		args = []string{"-json", "-lib", lib, "-model", model, "-store", filepath.Join(dir, "store"), "-prompt-file", text, "-continue", fmt.Sprint(r.size.storyAnswer)}
	}
	restored, size, err := r.restoreStory()
	if err != nil {
		return err
	}
	cmd := exec.Command(binary, args...)
	var errout bytes.Buffer
	cmd.Stderr = &errout
	out, err := cmd.Output()
	var s story
	if jsonErr := json.Unmarshal(out, &s); jsonErr != nil {
		return fmt.Errorf("examples/%s: %w: %s", program, errors.Join(err, jsonErr), bytes.TrimSpace(errout.Bytes()))
	}
	if err != nil { // its own checks failed; the times are those that were measured
		r.notes = append(r.notes, fmt.Sprintf("%s: examples/%s says: %v: %s", name, program, err, bytes.TrimSpace(errout.Bytes())))
	}
	if s.WarmMillis <= 0 || s.ColdMillis <= 0 {
		return fmt.Errorf("examples/%s gave no times: %s", program, out)
	}
	ratio := []float64{s.ColdMillis / s.WarmMillis}
	what := "the small transformer of examples/warmstart (set DORMOUSE_LLAMA_LIB and DORMOUSE_LLAMA_MODEL for a real model)"
	if program == "llamachat" {
		what = "examples/llamachat, " + filepath.Base(model)
	}
	r.emit(figure{name: name, unit: "x", values: ratio, ratios: ratio,
		reference: fmt.Sprintf("%s: %d tokens, first token after %.0f ms cold, %.0f ms warm (%d reused), one run, each in a process of its own; "+
			"restoring %d tokens of a Llama 3.2 1B's shape (%d MiB of f16) alone takes %s here", what, s.PromptTokens, s.ColdMillis, s.WarmMillis, s.ReusedTokens,
			storyLength, size>>20, restored)})
	return nil
}

// restoreStory times the restore of a prompt of 2,048 tokens of a model with Llama 3.2 1B's shape.
func (r *run) restoreStory() (took string, size int64, err error) {
	s, err := r.storePrompt("ttft", descriptor(r.size.layers, kv.F16), storyLength/blockTokens, options())
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, s.discard()) }()
	dst := newKVCache(s.desc, storyLength)
	times, err := interleave(r.size.rounds, func() (time.Duration, error) {
		return since(func() error { _, err := s.restore(s.prompt, dst.rows(storyLength)); return err })
	})
	if err != nil {
		return "", 0, err
	}
	return ms(times[0]), dst.bytes(), nil
}

// phrases is a text of so many sentences, about 14 tokens each.
func phrases(n int) string {
	who := []string{"The lighthouse keeper", "A dormouse", "My neighbour", "The night train", "Nobody in the village"}
	does := []string{"counts the boats", "sleeps until April", "repairs an old clock", "arrives before dawn", "remembers the flood"}
	where := []string{"near the harbour", "under the hazel", "in the yellow house", "behind the mill", "at the end of the road"}
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s %s %s, %d years ago. ", who[i%5], does[i/5%5], where[i/25%5], i+3)
	}
	return b.String() + "What happened then?"
}
