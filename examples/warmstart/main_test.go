package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/quant"
)

// asCommand in the environment makes the test binary be the command, so that it can start itself as a child.
const asCommand = "WARMSTART_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Setenv(asCommand, "1")
	os.Exit(m.Run())
}

// program runs the whole demonstration as a process of its own.
func program(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, bad bytes.Buffer
	c := exec.CommandContext(t.Context(), self, args...)
	c.Stdout, c.Stderr = &out, &bad
	err = c.Run()
	return out.String(), bad.String(), err
}

func TestKilledAndRestoredGoesOnAsIfNothingHadHappened(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: reads a prompt three times")
	}
	dir := filepath.Join(t.TempDir(), "kept")
	out, stderr, err := program(t, "-json", "-tokens", "128", "-continue", "24", "-dir", dir)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for field, want := range map[string]any{
		"ok": true, "prompt_tokens": 128.0, "reused_tokens": 127.0, "raw_reused_tokens": 127.0, "continued_tokens": 24.0,
		"raw_identical": true, "control_differs": true, "loop": false,
		"f16_bytes": 128.0 * 8 * 2 * 4 * 64 * 2, // layers, K and V, KV heads, head_dim, f16
	} {
		if got[field] != want {
			t.Errorf("%s is %v, want %v", field, got[field], want)
		}
	}
	number := func(field string) float64 {
		n, ok := got[field].(float64)
		if !ok {
			t.Errorf("%s is %v, want a number", field, got[field])
		}
		return n
	}
	for _, field := range []string{"cold_ttft_ms", "warm_ttft_ms", "raw_cold_ttft_ms", "raw_warm_ttft_ms", "store_bytes"} {
		if number(field) <= 0 {
			t.Errorf("%s is %v", field, got[field])
		}
	}
	if same := number("q8_same_top1"); same < leastSameTop1 || same > 1 {
		t.Errorf("q8_same_top1 is %v", same)
	}
	if raw, q8 := number("raw_record_bytes"), number("record_bytes"); q8 > 0.7*raw || raw < number("f16_bytes") {
		t.Errorf("records of %v bytes in raw, %v in q8_0", raw, q8)
	}

	// The bound on Q8_0 would notice a single wrong row.
	work := job{Seed: 1, Prompt: 128, Steps: 24}
	reference, err := runJob(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	work.Dir, work.Follow, work.BreakRow = filepath.Join(dir, quant.Q8_0.String()), reference.Best, true
	spoiled, err := runJob(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	if same := sameTokens(spoiled.Best, reference.Best); 2*same > work.Steps {
		t.Errorf("one row is spoiled, and %d of %d steps are the same", same, work.Steps)
	}

	// The folder that was asked for is kept, and is not taken for a fresh one.
	if _, stderr, err := program(t, "-tokens", "128", "-dir", dir); err == nil || !strings.Contains(stderr, "not empty") {
		t.Errorf("a second run in the same folder: %v, %s", err, stderr)
	}
}

// A wrong call names the flag, what it was and what is expected, starts nothing, and is told from a failure by its exit code.
func TestFlagsAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range [][]string{
		{"-tokens", "-3"}, {"-tokens", "63"}, {"-continue", "0"}, {"-continue", "-4"}, {"-continue", "2000000000"},
		{"-seed", "-1"}, {"-dir", file}, {"-dir", filepath.Dir(file)}, {"-nope"}, {"rest"},
	} {
		out, stderr, err := program(t, x...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, x[0]) || out != "" {
			t.Errorf("%q: %v, %q, %q; expected exit code 2 and a line about %s", x, err, stderr, out, x[0])
		}
	}
	if out, _, err := program(t, "-h"); err != nil || !strings.Contains(out, "-print-tokens") {
		t.Errorf("-h: %v, %q", err, out)
	}
}

// -print-tokens prints the ids of the prompt that the stores hold.
func TestPrintTokens(t *testing.T) {
	out, _, err := program(t, "-print-tokens", "-tokens", "64")
	var ids []int32
	if jsonErr := json.Unmarshal([]byte(out), &ids); err != nil || jsonErr != nil || len(ids) != 64 {
		t.Errorf("%d ids: %v, %v", len(ids), err, jsonErr)
	}
}

// A child that fails is an error with its reason, not a kill that is taken for a success.
func TestKillNoticesThatNothingWasSaved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, how, err := runAndKill(context.Background(), job{Dir: file, Codec: quant.Raw, Seed: 1, Prompt: 64, Steps: 16})
	if err == nil {
		t.Fatalf("no error, %s", how)
	}
}

// Every single thing that can go wrong makes the command fail.
func TestNoFailureGoesUnseen(t *testing.T) {
	good := func() *outcome {
		var text []int32
		for i := range int32(64) {
			text = append(text, i*i%61)
		}
		run := func(reused int) answer {
			return answer{PromptTokens: 100, Reused: reused, Best: append([]int32(nil), text...), Logits: "same"}
		}
		o := &outcome{reference: run(0), control: run(99)}
		o.raw = measured{codec: quant.Raw, cold: run(0), warm: run(99)}
		o.q8 = measured{codec: quant.Q8_0, cold: run(0), warm: run(99)}
		o.control.Best[5]++
		return o
	}
	if bad := good().failures(); len(bad) > 0 {
		t.Fatalf("nothing is wrong, but: %q", bad)
	}
	for name, spoil := range map[string]func(*outcome){
		"raw: one token differs":     func(o *outcome) { o.raw.warm.Best[63]++ },
		"raw: text too short":        func(o *outcome) { o.raw.warm.Best = o.raw.warm.Best[:60] },
		"raw: one logit differs":     func(o *outcome) { o.raw.warm.Logits = "other" },
		"raw: nothing reused":        func(o *outcome) { o.raw.warm.Reused = 0 },
		"q8_0: one token too few":    func(o *outcome) { o.q8.warm.Reused-- },
		"q8_0: the cold one is warm": func(o *outcome) { o.q8.cold.Reused = 64 },
		"q8_0: four of 64 differ": func(o *outcome) {
			for i := range 4 {
				o.q8.warm.Best[i*9]++
			}
		},
		"control: nothing changes": func(o *outcome) { o.control.Best = o.reference.Best },
		"control: nothing reused":  func(o *outcome) { o.control.Reused = 0 },
		"the text is a loop": func(o *outcome) {
			for i := range o.reference.Best {
				o.reference.Best[i] = int32(i % 3)
			}
		},
	} {
		o := good()
		spoil(o)
		if len(o.failures()) == 0 {
			t.Errorf("%s: not noticed", name)
		}
	}
}

func TestLoopsAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.SliceOfN(rapid.Int32Range(0, 1000), 0, 32).Draw(t, "start")
		cycle := rapid.SliceOfN(rapid.Int32Range(0, 1000), 1, 8).Draw(t, "cycle")
		text := start
		for len(text) < 64 {
			text = append(text, cycle...)
		}
		if !loops(text[:64]) {
			t.Fatalf("%v does not count as a loop", text[:64])
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfNDistinct(rapid.Int32(), 16, 64, rapid.ID).Draw(t, "text")
		if loops(text) {
			t.Fatalf("%v counts as a loop", text)
		}
	})
}
