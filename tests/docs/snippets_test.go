package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// block is fenced text of a page.
type block struct {
	page string
	line int
	code string
}

var (
	quality = []string{"docs/embedding.md", "docs/llamacpp.md"}                                                     // they have the table of what a codec costs
	pages   = append(quality, "docs/conversations.md", "docs/eviction.md", "docs/metrics.md", "docs/operations.md") // all with pieces of Go
)

// blocks are the fenced blocks of a page in a language; "" is a block without one.
func blocks(t *testing.T, page, language string) (found []block) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	inside, at := false, -1
	for i, line := range strings.Split(string(b), "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			if inside = !inside; inside && line == "```"+language {
				at = len(found)
				found = append(found, block{page: page, line: i + 2})
			} else {
				at = -1
			}
		case at >= 0:
			found[at].code += line + "\n"
		}
	}
	if inside {
		t.Errorf("%s: the last fence is not closed", page)
	}
	return found
}

func (b block) program() bool { return strings.HasPrefix(b.code, "package ") }

// Every program in the docs compiles, in a module of its own.
func TestProgramsCompile(t *testing.T) {
	programs := 0
	for _, page := range pages {
		for _, b := range blocks(t, page, "go") {
			if !b.program() {
				continue
			}
			programs++
			cgo := strings.Contains(b.code, `import "C"`)
			if cgo && !compiler(t) {
				t.Logf("SKIPPED %s:%d: it needs a C compiler", b.page, b.line)
				continue
			}
			dir := module(t, b.code)
			if out, err := goCommand(t, dir, cgo, "vet", ".").CombinedOutput(); err != nil {
				t.Errorf("%s:%d: %v\n%s", b.page, b.line, err, out)
			}
		}
	}
	if programs < 3 {
		t.Errorf("%d programs: expected the round, the binding and the chat", programs)
	}
}

// The program of embedding.md prints what the page says, the first time and the second.
func TestRoundPrintsWhatIsSaid(t *testing.T) {
	const page = "docs/embedding.md"
	var dir string
	for _, b := range blocks(t, page, "go") {
		if b.program() && strings.Contains(b.code, "func round(") {
			dir = module(t, b.code)
		}
	}
	var said string
	for _, b := range blocks(t, page, "") {
		if strings.HasPrefix(b.code, "$ go run .\n") {
			said = b.code
		}
	}
	if dir == "" || said == "" {
		t.Fatalf("%s shows no round, or not what it prints", page)
	}
	var printed strings.Builder
	for range 2 {
		out, err := goCommand(t, dir, false, "run", ".").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		printed.WriteString("$ go run .\n" + string(out))
	}
	if printed.String() != said {
		t.Errorf("%s says\n%s\nand it prints\n%s", page, said, &printed)
	}
}

// Every other piece of Go is taken from code that compiles: its lines are, in this order, in one file of ours or in one of the programs above.
func TestPiecesAreOfCodeThatCompiles(t *testing.T) {
	var sources [][]string
	err := filepath.WalkDir(root, func(path string, x fs.DirEntry, err error) error {
		if err != nil || x.IsDir() && strings.HasPrefix(x.Name(), ".") && path != root {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		b, err := os.ReadFile(path)
		sources = append(sources, strings.Split(string(b), "\n"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var pieces []block
	for _, page := range pages {
		for _, b := range blocks(t, page, "go") {
			if b.program() {
				sources = append(sources, strings.Split(b.code, "\n"))
			} else {
				pieces = append(pieces, b)
			}
		}
	}
	for _, b := range pieces {
		best, missing := -1, ""
		for _, s := range sources {
			n, line := inOrder(strings.Split(b.code, "\n"), s)
			if n > best {
				best, missing = n, line
			}
		}
		if missing != "" {
			t.Errorf("%s:%d: no file of Go has these lines in this order; the nearest lacks %q", b.page, b.line, missing)
		}
	}
}

// inOrder counts the lines that come in this order in the source, spaces and comments at their ends apart, up to the first that does not.
func inOrder(lines, source []string) (n int, missing string) {
	bare := func(line string) string {
		line, _, _ = strings.Cut(line, " // ")
		return strings.TrimSpace(line)
	}
	at := 0
	for _, line := range lines {
		if bare(line) == "" {
			continue
		}
		for at < len(source) && bare(source[at]) != bare(line) {
			at++
		}
		if at == len(source) {
			return n, line
		}
		n, at = n+1, at+1
	}
	return n, ""
}

// The table of what a codec costs is the same wherever it stands.
func TestOneTableOfQuality(t *testing.T) {
	table := regexp.MustCompile(`(?m)^\| rows \| bytes a value \|.*\n(\|.*\n)+`)
	first := ""
	for _, page := range quality {
		b, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		found := table.FindString(string(b))
		if first == "" {
			first = found
		}
		if found == "" || found != first {
			t.Errorf("%s: the table is\n%s\nin %s it is\n%s", page, found, quality[0], first)
		}
	}
}

// module makes a module with one program, which takes ours, and what ours requires, from this machine.
func module(t *testing.T, code string) string {
	t.Helper()
	dir := t.TempDir()
	ours, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	const path = "github.com/dormousekv/dormouse"
	text := strings.Replace(string(mod), "module "+path, "module example.com/mine", 1)
	text = regexp.MustCompile(`(?m)^tool .*$`).ReplaceAllString(text, "")
	text += "\nrequire " + path + " v0.0.0\n\nreplace " + path + " => " + ours + "\n"
	for name, b := range map[string][]byte{"go.mod": []byte(text), "go.sum": sum, "main.go": []byte(code)} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func goCommand(t *testing.T, dir string, cgo bool, args ...string) *exec.Cmd {
	t.Helper()
	include, err := filepath.Abs("testdata/include")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	enabled := "0"
	if cgo {
		enabled = "1"
	}
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED="+enabled, "CGO_CFLAGS=-I"+include)
	return cmd
}

// compiler says whether there is a C compiler here.
func compiler(t *testing.T) bool {
	t.Helper()
	out, err := exec.Command("go", "env", "CC").Output()
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	_, err = exec.LookPath(name)
	return err == nil
}
