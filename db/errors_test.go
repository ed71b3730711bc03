package db

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Every error that a caller can ask for has a line that says when it is returned, and a row in the manual.
func TestErrorsAreInTheManual(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	manual, err := os.ReadFile(filepath.Join("..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
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
	f, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
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
	shown, err := parser.ParseExpr(block + "\n}")
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	for _, x := range shown.(*ast.StructType).Fields.List {
		fields = append(fields, x.Names[0].Name+" "+x.Type.(*ast.Ident).Name)
	}
	var want []string
	for _, x := range reflect.VisibleFields(reflect.TypeFor[CorruptError]()) {
		want = append(want, x.Name+" "+x.Type.String())
	}
	if !reflect.DeepEqual(fields, want) {
		t.Errorf("the comment shows %q, it has %q", fields, want)
	}
}

// Every method of a match says that it was closed.
func TestClosedMatchSaysSo(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 64)}
	put(t, m, p)
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d := m.Descriptor()
	rows := filled(d, &p, 0, 64)
	for name, call := range map[string]func() error{
		"Restore":       func() error { _, err := x.Restore(ctx, empty(d, 64)); return err },
		"RestoreRange":  func() error { _, err := x.RestoreRange(ctx, empty(d, 64)); return err },
		"RestoreLayers": func() error { _, err := x.RestoreLayers(ctx, empty(d, 64), func(int, int) {}); return err },
		"Extend":        func() error { _, err := x.Extend(ctx, p, rows, PutOptions{}); return err },
		"View":          func() error { return x.View(ctx, func(StoredPlane) error { return nil }) },
		"StateBytes":    func() error { _, err := x.StateBytes(0); return err },
	} {
		if err := call(); !errors.Is(err, ErrMatchClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A full disk without room for a barrier says both: that there is none, and why.
func TestNoBarrierOnAFullDisk(t *testing.T) {
	var full atomic.Bool
	o := options()
	o.fs = fullFS{vfs.OS, &full}
	s := open(t, t.TempDir(), o)
	put(t, model(t, s, plain()), kv.Prompt{Tokens: tokens(1, 64)})
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	for err := error(nil); err == nil; {
		_, err = s.eng.Inside().LogBarrier(0)
	}
	if err := s.eng.Barrier(s.eng.Inside().Wal().LastLSN()); !errors.Is(err, ErrNoBarrier) || !errors.Is(err, ErrNoSpace) {
		t.Errorf("a barrier without room: %v", err)
	}
	full.Store(false)
	if err := s.Sync(ctx); err != nil {
		t.Error(err)
	}
}

// A record of another block's place is damage to whoever looks at it, with file and offset.
func TestViewOfAnotherRecordIsDamage(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p, other := kv.Prompt{Tokens: tokens(1, 16)}, kv.Prompt{Tokens: tokens(2, 16)}
	put(t, m, p)
	put(t, m, other)
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	y, err := m.Match(ctx, other, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	x.held.Found.Hits[0].Groups[0].Loc = y.held.Found.Hits[0].Groups[0].Loc
	var bad *CorruptError
	err = x.View(ctx, func(StoredPlane) error { return nil })
	if !errors.As(err, &bad) || bad.File == "" || bad.Offset != y.held.Found.Hits[0].Groups[0].Loc.Offset {
		t.Errorf("view: %v", err)
	}
}
