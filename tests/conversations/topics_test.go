//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/chat/topic"
)

// The labels are those that were there before any embedder was tried on them, and what the docs say of the one by words is what they give.
func TestTopics(t *testing.T) {
	t.Chdir("../..")
	b, err := os.ReadFile(labels)
	if err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(b)); sum != "a81b879a320148e2da9a393fb1f00a9a18836c664160fa4f842a552f7927f297" {
		t.Errorf("%s has changed: SHA-256 %s", labels, sum)
	}
	pairs, err := labelled(labels)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, p := range pairs {
		count[fmt.Sprint(p.kind, p.held)]++
	}
	for kind, n := range count {
		if n != 20 || len(count) != 12 {
			t.Errorf("%s: %d pairs, want 20 of each of 12 kinds", kind, n)
		}
	}
	var out strings.Builder
	args := []string{"topics", "-model", ""}
	if wheel := os.Getenv("DORMOUSE_MINILM_WHEEL"); wheel != "" {
		args = append(args, "-minilm", wheel)
	} else {
		t.Log("SKIPPED, the rows of the trained embedder are not measured: DORMOUSE_MINILM_WHEEL is not set")
	}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/conversations.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(rows) < 4 {
		t.Fatalf("it prints %q", out.String())
	}
	for _, row := range rows {
		if !strings.Contains(string(page), row+"\n") {
			t.Errorf("docs/conversations.md lacks what is measured:\n%s", row)
		}
	}
	if want := fmt.Sprintf("| words | yes | %.3f |", topic.WordsThreshold); !strings.HasPrefix(rows[3], want) {
		t.Errorf("%s is not what topic.WordsThreshold says: %s", rows[3], want)
	}
}

// What is no such wheel is an error.
func TestNoWheel(t *testing.T) {
	dir := t.TempDir()
	for _, content := range []string{"", "PK\x05\x06" + strings.Repeat("\x00", 18)} {
		if err := os.WriteFile(dir+"/w.whl", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := minilm(dir+"/w.whl", dir+"/m.gguf"); err == nil {
			t.Errorf("%q was taken for a model", content)
		}
	}
	for name, b := range map[string]string{"cut off": "\xff\xff\xff\xff\xff\xff\xff\xff", "no JSON": "\x01\x00\x00\x00\x00\x00\x00\x00x", "nothing in it": "\x02\x00\x00\x00\x00\x00\x00\x00{}"} {
		if err := tensors(nil, []byte(b), 6); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
