package lock

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// docs/internals.md has the table as it is here.
func TestTableIsInTheManual(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "internals.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i, x := range Order {
		fmt.Fprintf(&want, "| %d | `%s` | %s |\n", i+1, Name(x.Place), x.Use)
	}
	if !strings.Contains(string(doc), want.String()) {
		t.Errorf("docs/internals.md does not have these lines one after the other:\n%s", want.String())
	}
}

// No place is in the table twice.
func TestPlacesDiffer(t *testing.T) {
	seen := map[Place]bool{}
	for _, x := range Order {
		if seen[x.Place] || x.Use == "" {
			t.Errorf("%s is there twice, or for nothing", Name(x.Place))
		}
		seen[x.Place] = true
	}
}
