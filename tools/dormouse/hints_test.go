package main

import (
	"bytes"
	"strings"
	"testing"
)

// What somebody meant is said: a flag of llama-server in front of --, a flag that is spelled otherwise, a command.
func TestHints(t *testing.T) {
	for line, expected := range map[string]string{
		"serve -m x.gguf":               "behind --, as in `dormouse serve -- llama-server -m model.gguf`",
		"serve --model x.gguf":          "behind --, as in `dormouse serve -- llama-server",
		"serve x.gguf":                  "dormouse serve -- llama-server -m x.gguf",
		"serve -- x.gguf":               "dormouse serve -- llama-server -m x.gguf",
		"doctor -ngl 99":                "behind --, as in `dormouse doctor -- llama-server",
		"serve --stor x -- y":           "did you mean --store?",
		"serve --bugdet 1GiB -- y":      "did you mean --budget?",
		"serve --durabilty power -- y":  "did you mean --durability?",
		"status --jso":                  "did you mean --json?",
		"status --quite-another":        "dormouse status has no flag --quite-another",
		"stats":                         "Did you mean this?",
		"serve --log loud -- llama-cli": "--log",
	} {
		var out, said bytes.Buffer
		if code := run(t.Context(), strings.Fields(line), &out, &said); code != 2 || !strings.Contains(said.String(), expected) {
			t.Errorf("dormouse %s: exit code %d, %q, expected %q", line, code, said.String(), expected)
		}
	}
}
