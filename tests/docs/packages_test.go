package docs

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The map of the packages says what each package that db is made of imports of ours, beside kv, and all of them are on it.
func TestMapOfThePackages(t *testing.T) {
	page, err := os.ReadFile("../../docs/internals.md")
	if err != nil {
		t.Fatal(err)
	}
	_, inner, found := strings.Cut(string(page), "\ndb/internal/ ")
	if !found {
		t.Fatal("docs/internals.md has no map of db/internal/")
	}
	said := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  (\w+)/ .*-> (.*)$`).FindAllStringSubmatch(inner, -1) {
		list := strings.Split(strings.TrimPrefix(m[2], "nothing"), ", ")
		slices.Sort(list)
		said[m[1]] = strings.Join(list, ", ")
	}
	const module = "github.com/dormousekv/dormouse/"
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "../../db/internal/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		f := strings.Fields(line)
		name := strings.TrimPrefix(f[0], module+"db/internal/")
		if strings.HasPrefix(name, "testkit/") {
			continue
		}
		imports := map[string]bool{}
		for _, x := range f[1:] {
			x = strings.TrimPrefix(strings.TrimPrefix(x, module), "db/internal/")
			if slices.Contains([]string{"quant", "segments", "sessions", "wal", "index"}, x) || slices.Contains(slices.Collect(maps.Keys(said)), x) {
				imports[x] = true
			}
			if x == "db" {
				t.Errorf("db/internal/%s imports db", name)
			}
		}
		if want := strings.Join(slices.Sorted(maps.Keys(imports)), ", "); said[name] != want {
			t.Errorf("db/internal/%s imports %q, the map says %q", name, want, said[name])
		}
	}
}

// So it does for the packages outside: what each imports of ours, but for what only it or all of them may use, internal/. That of db itself is a
// sentence.
func TestMapOfTheOuterPackages(t *testing.T) {
	page, err := os.ReadFile("../../docs/internals.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Map\n")
	_, section, _ = strings.Cut(section, "\n```\n")
	section, _, found := strings.Cut(section, "\n```\n")
	if !found {
		t.Fatal("docs/internals.md has no map of the packages")
	}
	const module = "github.com/dormousekv/dormouse/"
	short := func(path string) string {
		path = strings.TrimPrefix(strings.TrimPrefix(path, module), "db/internal/")
		return strings.TrimPrefix(path, "runtimes/")
	}
	parent := ""
	said := 0
	for _, m := range regexp.MustCompile(`(?m)^( *)([\w/]+)/ (?:.* -> (.*))?`).FindAllStringSubmatch(section, -1) {
		path := m[2]
		if m[1] == "" {
			parent = path
		} else {
			path = parent + "/" + path
		}
		if m[3] == "" || path == "db" || strings.HasPrefix(path, "db/internal/") {
			continue
		}
		said++
		out, err := exec.Command("go", "list", "-f", `{{join .Imports " "}}`, "../../"+path).Output()
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		imports := map[string]bool{}
		for _, x := range strings.Fields(string(out)) {
			inner := strings.Contains(x, "/internal/") && !strings.HasPrefix(x, module+"db/internal/")
			if strings.HasPrefix(x, module) && !inner {
				imports[short(x)] = true
			}
		}
		list := strings.Split(strings.TrimPrefix(m[3], "none but internal"), ", ")
		slices.Sort(list)
		if want, got := strings.Join(slices.Sorted(maps.Keys(imports)), ", "), strings.Join(list, ", "); got != want {
			t.Errorf("%s imports %q, the map says %q", path, want, got)
		}
	}
	if said < 15 {
		t.Errorf("only %d packages found on the map", said)
	}
}
