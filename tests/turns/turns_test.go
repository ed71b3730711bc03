//go:build (linux && !android) || (darwin && !ios)

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == childFlag {
		if child(os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Whatever kills the processes of a chat, its answers and every logit are those of one that was never killed; of what was
// acknowledged, only what Align leaves is evaluated again. Some turns with a small model, and, but for -short, a few with the real ones, whose
// loading takes the time: the program has more (eight in .ci/run, thirty in .ci/long).
func TestTurnsWithKills(t *testing.T) {
	s := setting{Lib: os.Getenv("DORMOUSE_LLAMA_LIB"), Turns: 8, Answer: 12, Batch: 16, Threads: 1}
	if s.Lib == "" {
		t.Skip("SKIPPED, llama.cpp is not tried: DORMOUSE_LLAMA_LIB is not set; tests/llama/fetch.sh fetches the libraries")
	}
	models := []string{"../../runtimes/llamacpp/testdata/stories260K-f32.gguf"}
	for _, name := range []string{"DORMOUSE_LLAMA_SMOL", "DORMOUSE_LLAMA_MODEL"} {
		switch path := os.Getenv(name); {
		case path == "":
			t.Logf("SKIPPED, a real model: %s is not set", name)
		case testing.Short():
			t.Log("SKIPPED, a real model: -short")
		default:
			models = append(models, path)
		}
	}
	for seed, path := range models {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := s
			if s.Model = path; seed > 0 {
				s.Turns = 4
			}
			r, err := s.measure(t.TempDir(), uint64(seed))
			var b strings.Builder
			r.print(&b)
			t.Log(b.String())
			if err == nil {
				err = r.wrong()
			}
			if err != nil {
				t.Fatal(err)
			}
			kills := 0
			for _, x := range r.rows {
				kills += x.chat.kills
			}
			if kills < s.Turns/2 {
				t.Errorf("%d kills in %d turns: the test shows little", kills, 2*s.Turns)
			}
		})
	}
}
