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

// cells are those of the first row of a page's tables that begins with a name, without that.
func cells(t *testing.T, page, text, name string) (found []string) {
	t.Helper()
	line, _, _ := strings.Cut(rows(text, name), "\n")
	if line == "" {
		t.Fatalf("%s: no table has a row %q", page, name)
	}
	for _, c := range strings.Split(strings.TrimSuffix(line, "|"), "|")[2:] {
		found = append(found, strings.TrimSpace(c))
	}
	return found
}

// What README's first table says of a run on a real model is in a row of docs/llamacpp.md: the time cold and warm, and the tokens.
func TestRunOfReadme(t *testing.T) {
	readme, source := page(t, "README.md"), page(t, "docs/llamacpp.md")
	run := cells(t, "docs/llamacpp.md", source, "`raw`, f16")
	for name, want := range map[string]string{"read by the model": run[0], "restored from Dormouse, after the process was killed": run[1]} {
		said := cells(t, "README.md", readme, name)[0]
		if f := figures(said); len(f) != 1 || !stands(f[0], want) || strings.HasSuffix(said, " ms") && f[0]+" ms" != want {
			t.Errorf("README.md says %q of %q, docs/llamacpp.md %q", said, name, want)
		}
	}
	const tokens = "a prompt of 1,513 tokens"
	if !strings.Contains(readme, "| Gemma 3 270M on 2 shared cores, "+tokens+" |") || !strings.Contains(source, "Gemma 3 270M and "+tokens) {
		t.Errorf("README.md and docs/llamacpp.md do not both speak of Gemma 3 270M and %s", tokens)
	}
}

// What README says that INT8 costs is in the table of docs/llamacpp.md, and so is what it compares that with.
func TestCostOfReadme(t *testing.T) {
	readme, source := page(t, "README.md"), page(t, "docs/llamacpp.md")
	mean := func(row string) string { return figures(cells(t, "docs/llamacpp.md", source, row)[1])[0] }
	for _, said := range []string{
		"moves predictions by " + mean("`q8_0`, stored and restored") + " nats (mean KL)",
		"move them as far with nothing stored: " + mean("nothing stored, batches of 250 instead of 512"),
	} {
		if !strings.Contains(strings.ReplaceAll(readme, "\n", " "), said) {
			t.Errorf("README.md does not say %q, as docs/llamacpp.md has it", said)
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
}
