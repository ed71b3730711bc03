package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What a page links to in this repository is there: the file, and the heading behind the #.
func TestLinksOfThePages(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s#]*)(?:#([^)\s]+))?\)`)
	fence := regexp.MustCompile("(?s)\n```.*?\n```")
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/format/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			to, heading := m[1], m[2]
			if strings.Contains(to, "://") {
				continue
			}
			checked++
			at := page
			if to != "" {
				at = filepath.Join(filepath.Dir(page), to)
			}
			if _, err := os.Stat(at); err != nil {
				t.Errorf("%s links to %s: %v", page, to, err)
			} else if heading != "" && filepath.Ext(at) == ".md" && !headings(t, at)[heading] {
				t.Errorf("%s links to %s#%s: there is no such heading", page, to, heading)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d links are checked", checked)
	}
}

// headings are those of a page, as links name them: in small letters, with dashes for spaces, without what is neither letter nor digit.
func headings(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		name := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found[strings.ReplaceAll(name, " ", "-")] = true
	}
	return found
}
