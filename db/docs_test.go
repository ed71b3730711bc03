package db_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// The code that README and docs/embedding.md show is code that the tests run.
func TestDocsShowTheExamples(t *testing.T) {
	for doc, want := range map[string][]string{
		"../README.md":         {body(t, "example_test.go", "Example", "store, err := db.Open", "check(match.Close())")},
		"../docs/embedding.md": {declaration(t, "round_example_test.go", "model"), declaration(t, "round_example_test.go", "round"), declaration(t, "forget_example_test.go", "forget")},
	} {
		b, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range want {
			if !strings.Contains(string(b), code) {
				t.Errorf("%s does not show this:\n%s", doc, code)
			}
		}
	}
}

// declaration is the source of a variable or a function, with its comment.
func declaration(t *testing.T, file, name string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, b, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		from := d.Pos()
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.Name != name || d.Recv != nil {
				continue
			}
			from = d.Doc.Pos()
		case *ast.GenDecl:
			v, ok := d.Specs[0].(*ast.ValueSpec)
			if !ok || v.Names[0].Name != name {
				continue
			}
			from = d.Doc.Pos()
		}
		return string(b[fset.Position(from).Offset:fset.Position(d.End()).Offset])
	}
	t.Fatalf("%s has no %s", file, name)
	return ""
}

// body is part of a function's source, moved to the left, without the line that prints.
func body(t *testing.T, file, name, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(declaration(t, file, name), from)
	if !ok {
		t.Fatalf("%s: %s has no %q", file, name, from)
	}
	rest, _, ok = strings.Cut(rest, to)
	if !ok {
		t.Fatalf("%s: %s has no %q", file, name, to)
	}
	var out []string
	for line := range strings.Lines(from + rest + to) {
		if line = strings.TrimPrefix(line, "\t\t"); !strings.HasPrefix(line, "fmt.") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}
