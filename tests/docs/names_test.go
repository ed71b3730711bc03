package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named is what the Go code of the repository declares, and what its comments link to.
type named struct {
	of    map[string]map[string]bool // members by type, and by "package NAME": methods, fields, and for a package all of its declarations
	links []link
	files []string // paths of all files
}

type link struct{ where, pkg, to string }

func (n *named) add(owner, member string) {
	if n.of[owner] == nil {
		n.of[owner] = map[string]bool{}
	}
	n.of[owner][member] = true
}

// declared reads all Go files.
func declared(t *testing.T) *named {
	t.Helper()
	n := &named{of: map[string]map[string]bool{}}
	doclink := regexp.MustCompile(`\[\*?((?:[a-z]\w*\.)?[A-Z]\w*[a-z]\w*(?:\.[A-Z]\w*)?)\]`)
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, x fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if x.IsDir() {
			if strings.HasPrefix(x.Name(), ".") && path != root {
				return fs.SkipDir
			}
			return nil
		}
		n.files = append(n.files, filepath.ToSlash(path))
		if filepath.Ext(path) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		pkg := "package " + strings.TrimSuffix(f.Name.Name, "_test")
		n.declarations(f, pkg)
		if strings.HasSuffix(path, "_test.go") {
			return nil
		}
		for _, group := range f.Comments {
			for _, m := range doclink.FindAllStringSubmatch(group.Text(), -1) {
				n.links = append(n.links, link{files.Position(group.Pos()).String(), pkg, m[1]})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *named) declarations(f *ast.File, pkg string) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				n.add(pkg, d.Name.Name)
				continue
			}
			typ := d.Recv.List[0].Type
			if p, ok := typ.(*ast.StarExpr); ok {
				typ = p.X
			}
			if p, ok := typ.(*ast.IndexExpr); ok {
				typ = p.X
			}
			if id, ok := typ.(*ast.Ident); ok {
				n.add(id.Name, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, id := range s.Names {
						n.add(pkg, id.Name)
					}
				case *ast.TypeSpec:
					n.add(pkg, s.Name.Name)
					n.add(s.Name.Name, "")
					n.members(s.Name.Name, s.Type)
				}
			}
		}
	}
}

// members are those of a type: fields, methods, and those of what it embeds, whatever package that is of. Those of an alias are those of what it names.
func (n *named) members(typ string, of ast.Expr) {
	var list *ast.FieldList
	switch of := of.(type) {
	case *ast.StructType:
		list = of.Fields
	case *ast.InterfaceType:
		list = of.Methods
	case *ast.SelectorExpr:
		n.add(typ, "= "+of.Sel.Name)
		return
	case *ast.Ident:
		n.add(typ, "= "+of.Name)
		return
	default:
		return
	}
	for _, f := range list.List {
		for _, id := range f.Names {
			n.add(typ, id.Name)
		}
		if len(f.Names) == 0 {
			inner := f.Type
			if p, ok := inner.(*ast.StarExpr); ok {
				inner = p.X
			}
			n.members(typ, inner)
			if id, ok := inner.(*ast.Ident); ok {
				n.add(typ, id.Name)
			} else if s, ok := inner.(*ast.SelectorExpr); ok {
				n.add(typ, s.Sel.Name)
			}
		}
	}
}

// has says whether an owner, a package or a type, has a member. What is neither is not ours: known is false.
func (n *named) has(owner, member string) (has, known bool) {
	m := n.of[owner]
	if m == nil {
		return false, false
	}
	if m[member] {
		return true, true
	}
	for name := range m {
		if inner, embeds := strings.CutPrefix(name, "= "); embeds && inner != owner {
			if has, known := n.has(inner, member); has || !known {
				return true, true
			}
		}
	}
	return false, true
}

// resolve says whether a name like db.Store.Planes, Store.Planes or db.ErrGone is declared. What does not begin with a package or a type of ours is none of ours.
func (n *named) resolve(name string) (has, known bool) {
	parts := strings.Split(name, ".")
	if !token.IsExported(parts[0]) {
		parts[0] = "package " + parts[0]
	}
	for i := 0; i+1 < len(parts); i++ {
		has, known = n.has(parts[i], parts[i+1])
		if !has {
			return has, known
		}
	}
	return has, known
}

// What comments link to, as in [Store.Planes], is declared.
func TestLinksOfCommentsAreDeclared(t *testing.T) {
	n := declared(t)
	for _, l := range n.links {
		has, known := n.of[l.pkg][l.to], true
		if strings.Contains(l.to, ".") {
			has, known = n.resolve(l.to)
		}
		if known && !has {
			t.Errorf("%s: [%s] is not declared", l.where, l.to)
		}
	}
	if len(n.links) < 100 {
		t.Errorf("only %d links are found in comments", len(n.links))
	}
}

// What the pages call by the name of a package or a type of ours, as in `Store.Planes`, is declared, and the files and folders that they name are there.
func TestNamesOfThePagesAreDeclared(t *testing.T) {
	n := declared(t)
	code := regexp.MustCompile("`([^`\n]+)`")
	dotted := regexp.MustCompile(`^\w+(\.[A-Z]\w+)+$`)
	call := regexp.MustCompile(`[({\[\s].*$`)
	source := regexp.MustCompile(`^[\w./-]+\.(go|sh|py|java|c|h|hpp|cpp)$`)
	folder := regexp.MustCompile(`^([a-z]+)(?:/[a-z]+)+$`)
	isDir := func(name string) bool {
		x, err := os.Stat(filepath.Join(root, name))
		return err == nil && x.IsDir()
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(root, "docs", "format", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages = append(append(pages, more...), filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"), filepath.Join(root, "SECURITY.md"))
	found := 0
	for _, page := range pages {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(b), "\n") {
			for _, m := range code.FindAllStringSubmatch(line, -1) {
				name := m[1]
				if source.MatchString(name) {
					if strings.Contains(name, "/") && !n.file(name) {
						t.Errorf("%s:%d: there is no file %s", page, i+1, name)
					}
					continue
				}
				if m := folder.FindStringSubmatch(name); m != nil && isDir(m[1]) && !isDir(name) {
					t.Errorf("%s:%d: there is no folder %s", page, i+1, name)
				}
				name = call.ReplaceAllString(name, "")
				if !dotted.MatchString(name) {
					continue
				}
				has, known := n.resolve(name)
				if known && !has {
					t.Errorf("%s:%d: `%s` is not declared", page, i+1, name)
				}
				if known {
					found++
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d names are found on the pages", found)
	}
}

func (n *named) file(name string) bool {
	for _, path := range n.files {
		if path == root+"/"+name || strings.HasSuffix(path, "/"+name) {
			return true
		}
	}
	return false
}
