package main

import (
	"bytes"
	"cmp"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The bars for methods of a struct and lines of a file.
const (
	maxMethods = 70
	maxLines   = 400
)

// methods are those of one struct.
type methods struct {
	name                 string // with its package
	own, promoted, funcs int
}

func (m methods) all() int { return m.own + m.promoted + m.funcs }

func (m methods) over() bool { return m.all() > maxMethods }

// methodsOf has every struct of a package.
func methodsOf(p *pkg) []methods {
	var found []methods
	for _, obj := range p.info.Defs {
		name, ok := obj.(*types.TypeName)
		if !ok || name.IsAlias() {
			continue
		}
		s, ok := name.Type().Underlying().(*types.Struct)
		if !ok {
			continue
		}
		m := methods{name: p.short() + "." + name.Name(), funcs: funcFields(p, s, map[*types.Struct]bool{})}
		for method := range types.NewMethodSet(types.NewPointer(name.Type())).Methods() {
			switch {
			case len(method.Index()) == 1:
				m.own++
			case method.Obj().Exported() || method.Obj().Pkg() == p.types:
				m.promoted++
			}
		}
		found = append(found, m)
	}
	slices.SortFunc(found, func(a, b methods) int {
		return cmp.Or(cmp.Compare(b.all(), a.all()), cmp.Compare(a.name, b.name))
	})
	return found
}

// funcFields counts the fields of a struct that hold a function, and those of the structs that it embeds.
func funcFields(p *pkg, s *types.Struct, seen map[*types.Struct]bool) (n int) {
	if seen[s] {
		return 0
	}
	seen[s] = true
	for f := range s.Fields() {
		if !f.Exported() && f.Pkg() != p.types {
			continue
		}
		t := f.Type().Underlying()
		if ptr, ok := t.(*types.Pointer); ok && f.Embedded() {
			t = ptr.Elem().Underlying()
		}
		switch t := t.(type) {
		case *types.Signature:
			n++
		case *types.Struct:
			if f.Embedded() {
				n += funcFields(p, t, seen)
			}
		}
	}
	return n
}

// length is how many lines a file has.
type length struct {
	file  string
	lines int
}

func (l length) over() bool { return l.lines > maxLines }

// lengthsOf has all Go files of a package but those that a program wrote.
func lengthsOf(p *pkg) ([]length, error) {
	var found []length
	for _, name := range p.sources() {
		b, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		if !generated(b) {
			found = append(found, length{p.short() + "/" + name, bytes.Count(b, []byte("\n"))})
		}
	}
	return found, nil
}

// generated says whether a file begins with the line by which Go knows that a program wrote it.
func generated(b []byte) bool {
	for line := range bytes.Lines(b) {
		if s := strings.TrimSpace(string(line)); strings.HasPrefix(s, "// Code generated ") && strings.HasSuffix(s, " DO NOT EDIT.") {
			return true
		} else if strings.HasPrefix(s, "package ") {
			return false
		}
	}
	return false
}

// locks are how many there are of each kind.
type locks struct {
	table  int      // places in the table of internal/lock
	store  []string // mutexes of db and what it is built from
	others []string
}

func locksOf(pkgs []*pkg) locks {
	var l locks
	below := belowDB(pkgs)
	for _, p := range pkgs {
		if p.short() == "internal/lock" {
			l.table = places(p.types)
			continue
		}
		var found []string
		for id, obj := range p.info.Defs {
			v, ok := obj.(*types.Var)
			if !ok {
				continue
			}
			if t := types.TypeString(v.Type(), nil); t == "sync.Mutex" || t == "sync.RWMutex" {
				found = append(found, p.short()+"/"+p.file(id.Pos())+": "+v.Name())
			}
		}
		slices.Sort(found)
		if below[p.ImportPath] {
			l.store = append(l.store, found...)
		} else {
			l.others = append(l.others, found...)
		}
	}
	return l
}

// places counts the types that are a place in the table.
func places(lock *types.Package) (n int) {
	place, ok := lock.Scope().Lookup("Place").(*types.TypeName)
	if !ok {
		return 0
	}
	for _, name := range lock.Scope().Names() {
		if t, ok := lock.Scope().Lookup(name).(*types.TypeName); ok && t != place && types.Implements(t.Type(), place.Type().Underlying().(*types.Interface)) {
			n++
		}
	}
	return n
}

// belowDB are db and the packages of the project that it is built from.
func belowDB(pkgs []*pkg) map[string]bool {
	imports := map[string][]string{}
	below := map[string]bool{}
	var add func(path string)
	add = func(path string) {
		if _, ours := imports[path]; !ours || below[path] {
			return
		}
		below[path] = true
		for _, i := range imports[path] {
			add(i)
		}
	}
	for _, p := range pkgs {
		imports[p.ImportPath] = p.Imports
	}
	add(pkgs[0].Module.Path + "/db")
	return below
}

// docLines is how long `go doc -all ./db` is.
func docLines(module string) (int, error) {
	cmd := exec.Command("go", "doc", "-all", "./db")
	cmd.Dir = module
	out, err := cmd.Output()
	return bytes.Count(out, []byte("\n")), err
}
