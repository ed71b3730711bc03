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

// The map of the packages in the design says what each package that db is made of imports of ours, beside kv, and all of them are on it.
func TestMapOfThePackages(t *testing.T) {
	page, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, inner, found := strings.Cut(string(page), "\ndb/internal/ ")
	if !found {
		t.Fatal("docs/design.md has no map of db/internal/")
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
		if name == "storetest" || name == "crashtest" || name == "script" { // for tests
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
