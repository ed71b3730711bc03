package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What was measured in several calls is drawn together; what was not measured is computed from what was, and says so.
func TestCostsAreDrawn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "costs.json")
	text := `{"Machine": "a machine", "Notes": ["SKIPPED: a reason"], "Prompts": [
		{"Model": "270M", "Tokens": 2048, "Stored": 20971520, "Seconds": {"warm": {"Median": 0.002}, "cold": {"Median": 0.02}, "recompute": {"Median": 5}}},
		{"Model": "8B", "Tokens": 2048, "Seconds": {"cold 0.5 GB/s": {"Median": 0.3}, "file cold 0.5 GB/s": {"Median": 0.6}}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := drawCosts(path, dir); err != nil {
		t.Fatal(err)
	}
	for name, wanted := range map[string][]string{
		"cost-models.svg":  {"Gemma 3 270M: 18 KiB", "Llama 3.1 8B: 128 KiB", "2.00 ms", "5.00 s", "bar computed"},
		"cost-storage.svg": {"Dormouse, 0.5 GB/s", "300 ms", "600 ms"},
		"cost.md":          {"| Gemma 3 270M | 18 KiB | 2,048 | 20.0 MiB | 2.00 ms | 20.0 ms |", "min (estimate) |", "a machine", "SKIPPED: a reason"},
	} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range wanted {
			if !strings.Contains(string(got), part) {
				t.Errorf("%s lacks %q", name, part)
			}
		}
		if filepath.Ext(name) != ".svg" {
			continue
		}
		for d := xml.NewDecoder(strings.NewReader(string(got))); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}
