package db_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// Every error that a caller can ask for has a line that says when it is returned, and a row in the manual.
func TestErrorsAreInTheManual(t *testing.T) {
	f := storetest.Must(parser.ParseFile(token.NewFileSet(), "errors.go", nil, parser.ParseComments))(t)
	manual := storetest.Must(os.ReadFile(filepath.Join("..", "docs", "operations.md")))(t)
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		v, ok := node.(*ast.ValueSpec)
		if !ok || !v.Names[0].IsExported() {
			return true
		}
		n++
		name := v.Names[0].Name
		if !strings.HasPrefix(v.Doc.Text(), name+" is ") {
			t.Errorf("%s: %q, expected when it is returned", name, v.Doc.Text())
		}
		if !strings.Contains(string(manual), "\n| `"+name+"`") {
			t.Errorf("docs/operations.md has no row for %s", name)
		}
		return false
	})
	if n < 20 {
		t.Errorf("%d errors", n)
	}
}

// The comment of CorruptError shows the fields that it has: go doc shows none of an alias.
func TestCorruptErrorShowsItsFields(t *testing.T) {
	f := storetest.Must(parser.ParseFile(token.NewFileSet(), "errors.go", nil, parser.ParseComments))(t)
	doc := ""
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE && g.Specs[0].(*ast.TypeSpec).Name.Name == "CorruptError" {
			doc = g.Doc.Text()
		}
	}
	_, block, ok := strings.Cut(doc, "type CorruptError ")
	block, _, ok2 := strings.Cut(block, "\n\t}")
	if !ok || !ok2 {
		t.Fatalf("the comment shows no struct: %s", doc)
	}
	shown := storetest.Must(parser.ParseExpr(block + "\n}"))(t)
	var fields []string
	for _, x := range shown.(*ast.StructType).Fields.List {
		fields = append(fields, x.Names[0].Name+" "+x.Type.(*ast.Ident).Name)
	}
	var want []string
	for _, x := range reflect.VisibleFields(reflect.TypeFor[db.CorruptError]()) {
		want = append(want, x.Name+" "+x.Type.String())
	}
	if !reflect.DeepEqual(fields, want) {
		t.Errorf("the comment shows %q, it has %q", fields, want)
	}
}

// Every method of a match says that it was closed.
func TestClosedMatchSaysSo(t *testing.T) {
	_, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	storetest.Put(t, m, p)
	x, err := m.Match(t.Context(), p, db.MatchOptions{})
	storetest.OK(t, err)
	for range 2 {
		storetest.OK(t, x.Close())
	}
	d := m.Descriptor()
	rows := storetest.Filled(d, &p, 0, 64)
	for name, call := range map[string]func() error{
		"Restore":      func() error { _, err := x.Restore(t.Context(), storetest.Empty(d, 64)); return err },
		"RestoreRange": func() error { _, err := x.RestoreRange(t.Context(), storetest.Empty(d, 64)); return err },
		"RestoreLayers": func() error {
			_, err := x.RestoreLayers(t.Context(), storetest.Empty(d, 64), func(int, int) {})
			return err
		},
		"Extend":     func() error { _, err := x.Extend(t.Context(), p, rows, db.PutOptions{}); return err },
		"View":       func() error { return x.View(t.Context(), func(db.StoredPlane) error { return nil }) },
		"StateBytes": func() error { _, err := x.StateBytes(0); return err },
	} {
		if err := call(); !errors.Is(err, db.ErrMatchClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is called with a context that is done does nothing, and says so.
func TestRemovingWithAContextThatIsDone(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64), Scope: "user", ScopeStart: 16}
	storetest.Put(t, m, p)
	storetest.OK(t, m.SetRef(t.Context(), "ref", p, db.RefOptions{}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, deleted := m.Delete(ctx, p)
	_, scope := s.DeleteScope(ctx, "user")
	for what, err := range map[string]error{
		"Delete": deleted, "DeleteScope": scope, "DeleteRef": s.DeleteRef(ctx, "ref"), "Retire": s.Retire(ctx, m.Fingerprint()),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	storetest.Expect(t, m, p, 64)
	if _, err := s.Ref("ref"); err != nil {
		t.Error(err)
	}
}

// The code that docs/embedding.md shows is code that the tests run.
func TestDocsShowTheExamples(t *testing.T) {
	const doc = "../docs/embedding.md"
	page := string(storetest.Must(os.ReadFile(doc))(t))
	for _, code := range []string{declaration(t, "round_example_test.go", "model"), declaration(t, "round_example_test.go", "round"), declaration(t, "forget_example_test.go", "forget")} {
		if !strings.Contains(page, code) {
			t.Errorf("%s does not show this:\n%s", doc, code)
		}
	}
}

// declaration is the source of a variable or a function, with its comment.
func declaration(t *testing.T, file, name string) string {
	t.Helper()
	b := storetest.Must(os.ReadFile(file))(t)
	fset := token.NewFileSet()
	f := storetest.Must(parser.ParseFile(fset, file, b, parser.ParseComments))(t)
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
