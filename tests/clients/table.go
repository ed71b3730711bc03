//go:build unix

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
)

// last is the last line.
type last struct {
	Starts    int            `json:"starts"`
	FirstHits int            `json:"first_hits"`
	Others    map[string]int `json:"first_others,omitempty"` // what X-Dormouse said where it was no hit
	Clients   int            `json:"clients"`
	Skipped   reasons        `json:"skipped"`
}

// printTable prints a table in Markdown.
func printTable(w io.Writer, rows []*row, l last) error {
	var b strings.Builder
	b.WriteString("| client | prompt | resumed after a kill | in another folder | there, as advised | first token: cold, resumed |\n| --- | ---: | ---: | ---: | ---: | ---: |\n")
	for _, r := range rows {
		advised := "–"
		if r.ElsewhereAdvised != nil {
			advised = fmt.Sprintf("%s with `%s`", share(*r.ElsewhereAdvised, *r.ElsewhereAdvisedAsked), r.Advice)
		}
		fmt.Fprintf(&b, "| %s %s | %s | %s | %s | %s | %.1f s, %.1f s |\n", r.Client, r.Version, humanize.Comma(int64(r.PromptTokens)), share(r.ResumedTokens, r.ResumedPrompt),
			share(r.ElsewhereTokens, r.ElsewherePrompt), advised, float64(r.ColdTTFT)/1000, float64(r.ResumedTTFT)/1000)
	}
	if l.Starts > 0 {
		fmt.Fprintf(&b, "\nOf %d first requests after a start %d were hits.", l.Starts, l.FirstHits)
		for _, what := range sorted(l.Others) {
			fmt.Fprintf(&b, " %d times: %s.", l.Others[what], what)
		}
		b.WriteString("\n")
	}
	for _, name := range sorted(l.Skipped) {
		fmt.Fprintf(&b, "\nSkipped: %s: %s\n", name, l.Skipped[name])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func share(tokens, of int) string {
	return fmt.Sprintf("%.1f %%", 100*float64(tokens)/float64(max(of, 1)))
}
