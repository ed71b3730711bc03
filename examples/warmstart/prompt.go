package main

import (
	_ "embed"
	"strings"

	"github.com/dormousekv/dormouse/internal/tiny"
)

var (
	//go:embed system.txt
	systemText string
	//go:embed user.txt
	userText string
)

// readPrompt returns the chat turn as tokens, or its first n if n is positive.
func readPrompt(t *tiny.Tokenizer, n int) []int32 {
	ids := t.Encode(systemText + "\nMarta: " + strings.TrimSpace(userText) + "\nHazel:")
	if n > 0 {
		ids = ids[:min(n, len(ids))]
	}
	return ids
}
