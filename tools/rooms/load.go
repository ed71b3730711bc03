package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
)

// listed is what `go list` says of a package.
type listed struct {
	ImportPath, Dir, Export                      string
	DepOnly                                      bool
	Module                                       *struct{ Path, Dir, GoVersion string }
	Imports                                      []string
	GoFiles, CgoFiles, TestGoFiles, XTestGoFiles []string
	IgnoredGoFiles                               []string
	ImportMap                                    map[string]string
}

// pkg is a package of the project with its types.
type pkg struct {
	listed
	fset  *token.FileSet
	files []*ast.File // without tests
	types *types.Package
	info  *types.Info
}

// short is the package's path inside the module.
func (p *pkg) short() string {
	if rel, err := filepath.Rel(p.Module.Dir, p.Dir); err == nil {
		return filepath.ToSlash(rel)
	}
	return p.ImportPath
}

// file is the name of the file where something is declared.
func (p *pkg) file(pos token.Pos) string { return filepath.Base(p.fset.File(pos).Name()) }

// sources are the names of all Go files of the package: tests, and what other systems build.
func (p *pkg) sources() []string {
	return slices.Sorted(slices.Values(slices.Concat(p.GoFiles, p.CgoFiles, p.TestGoFiles, p.XTestGoFiles, p.IgnoredGoFiles)))
}

// load reads the packages that the patterns name. It has the compiler's word for what they import, so only they are parsed.
func load(patterns ...string) ([]*pkg, error) {
	all, err := list(patterns)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	export := func(path string) (io.ReadCloser, error) {
		if all[path] == nil || all[path].Export == "" {
			return nil, fmt.Errorf("%s is not compiled", path)
		}
		return os.Open(all[path].Export)
	}
	compiled := importer.ForCompiler(fset, "gc", export)
	var pkgs []*pkg
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if all[path].DepOnly {
			continue
		}
		p := &pkg{listed: *all[path], fset: fset}
		if err := p.check(compiled); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) == 0 {
		return nil, errors.New("no packages")
	}
	return pkgs, nil
}

// list has the packages and all that they import, by path, compiled for Linux.
func list(patterns []string) (map[string]*listed, error) {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json"}, patterns...)...)
	cmd.Env = append(os.Environ(), "GOOS=linux")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	all := map[string]*listed{}
	for d := json.NewDecoder(out); ; {
		var l listed
		if err := d.Decode(&l); err == io.EOF {
			break
		} else if err != nil {
			return nil, errors.Join(err, cmd.Wait())
		}
		all[l.ImportPath] = &l
	}
	return all, cmd.Wait()
}

// check parses the package's files and finds out what each name means.
func (p *pkg) check(imported types.Importer) error {
	for _, name := range slices.Sorted(slices.Values(slices.Concat(p.GoFiles, p.CgoFiles))) {
		f, err := parser.ParseFile(p.fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.files = append(p.files, f)
	}
	conf := types.Config{
		Importer:    mapped{imported, p.ImportMap},
		Sizes:       types.SizesFor("gc", runtime.GOARCH),
		FakeImportC: true, // names of C are no names of the package
		GoVersion:   "go" + p.Module.GoVersion,
	}
	p.info = &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	var err error
	p.types, err = conf.Check(p.ImportPath, p.fset, p.files, p.info)
	return err
}

// mapped imports a package by the path that go list gives it, where the standard library has its own copy of one.
type mapped struct {
	types.Importer
	paths map[string]string
}

func (m mapped) Import(path string) (*types.Package, error) {
	if p, ok := m.paths[path]; ok {
		path = p
	}
	return m.Importer.Import(path)
}
