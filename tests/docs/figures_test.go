package docs

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A figure stands alone: no letter or digit is before it, as in f16 or INT8.
var figure = regexp.MustCompile(`(^|[^\w.,])(\d+(?:,\d{3})*(?:\.\d+)?)`)

// figures are the numbers in a text, as they are written.
func figures(text string) (found []string) {
	for _, m := range figure.FindAllStringSubmatch(text, -1) {
		found = append(found, m[2])
	}
	return found
}

// stands says whether a number, as it is written, is one of those in a text, rounded, and perhaps in a unit of a thousand times as much or as little.
func stands(number, text string) bool {
	plain := strings.ReplaceAll(number, ",", "")
	_, decimals, _ := strings.Cut(plain, ".")
	for _, f := range figures(text) {
		x, err := strconv.ParseFloat(strings.ReplaceAll(f, ",", ""), 64)
		if err != nil {
			continue
		}
		for _, scale := range []float64{1, 1e-3, 1e3} {
			if strconv.FormatFloat(x*scale, 'f', len(decimals), 64) == plain {
				return true
			}
		}
	}
	return false
}

func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// rows are the lines of tables whose first cell is one of the names.
func rows(text string, names ...string) (found string) {
	for _, line := range strings.Split(text, "\n") {
		for _, name := range names {
			if strings.HasPrefix(line, "| "+name+" |") {
				found += line + "\n"
			}
		}
	}
	return found
}

// Each figure of README's "How fast" is in the row of docs/performance.md that it names.
func TestFiguresOfReadme(t *testing.T) {
	_, section, found := strings.Cut(page(t, "README.md"), "\n## How fast\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("README.md says nowhere how fast it is")
	}
	table := page(t, "docs/performance.md")
	name := regexp.MustCompile("`(\\w+)`")
	checked := 0
	for _, line := range strings.Split(section, "\n") {
		var names []string
		for _, m := range name.FindAllStringSubmatch(line, -1) {
			names = append(names, m[1])
		}
		if len(figures(line)) == 0 {
			continue
		}
		row := rows(table, names...)
		if row == "" {
			t.Errorf("README.md: no row of docs/performance.md is named beside the figures of %q", line)
			continue
		}
		for _, f := range figures(line) {
			checked++
			if !stands(f, row) {
				t.Errorf("README.md: %s is not in the row of docs/performance.md that is named beside it:\n%s", f, row)
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d figures are compared", checked)
	}
}

// What README says of the run on a real model is in a row of docs/llamacpp.md.
func TestRunOfReadme(t *testing.T) {
	readme := page(t, "README.md")
	i := strings.Index(readme, "\nGemma 3 270M, 1,513 tokens")
	if i < 0 {
		t.Fatal("README.md shows no run on Gemma 3 270M")
	}
	said, _, _ := strings.Cut(readme[i+1:], " (1,512 tokens reused)")
	_, said, _ = strings.Cut(said, "one run: ")
	if len(figures(said)) != 2 {
		t.Fatalf("README.md: %q has %d figures, expected the time cold and warm", said, len(figures(said)))
	}
	row := rows(page(t, "docs/llamacpp.md"), "`raw`, f16")
	for _, f := range figures(said) {
		if !stands(f, row) {
			t.Errorf("README.md: %s ms is not in docs/llamacpp.md:\n%s", f, row)
		}
	}
}

// How long a program is, where a page says it: as many lines as that, within a tenth.
func TestLinesOfPrograms(t *testing.T) {
	said := regexp.MustCompile(`\[(?:program of )?(\d+) lines\]\(([^)#]+)\)`)
	checked := 0
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(pages, filepath.Join(root, "README.md")) {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range said.FindAllStringSubmatch(string(b), -1) {
			program, err := os.ReadFile(filepath.Join(filepath.Dir(p), m[2]))
			if err != nil {
				t.Errorf("%s: %v", p, err)
				continue
			}
			want, _ := strconv.Atoi(m[1])
			checked++
			if n := strings.Count(string(program), "\n"); math.Abs(float64(n-want)) > float64(want)/10 {
				t.Errorf("%s: %s has %d lines, and is said to have %d", p, m[2], n, want)
			}
		}
	}
	if checked < 2 {
		t.Errorf("only %d programs are said to be so long", checked)
	}
	_, program, _ := strings.Cut(page(t, "docs/conversations.md"), "\n```go\n")
	program, _, _ = strings.Cut(program, "\n```\n")
	if n := strings.Count(program, "\n") + 1; n >= 100 && strings.Contains(page(t, "README.md"), "has less than 100 lines") {
		t.Errorf("the program of docs/conversations.md has %d lines, and README.md says less than 100", n)
	}
}
