package main

import (
	"cmp"
	"go/ast"
	"maps"
	"slices"
)

// The bar for arrows: percent that run back up, in packages with at least so many arrows.
const (
	maxBackUp = 15
	minArrows = 8
)

// arrows are those between the files of a package.
type arrows struct {
	pkg      string
	order    []string // the files, from top to bottom
	all      int
	backUp   []arrow
	searched bool // the order may not be the best one
}

// arrow runs from one file to another. Names are what it uses there.
type arrow struct {
	from, to string
	names    []string
}

func (a arrows) percent() float64 { return 100 * float64(len(a.backUp)) / float64(max(a.all, 1)) }

func (a arrows) over() bool { return a.all >= minArrows && a.percent() > maxBackUp }

// arrowsOf finds a package's arrows and the order in which the fewest of them run back up.
func arrowsOf(p *pkg) arrows {
	names := namesBetween(p)
	index := map[string]int{}
	var files []string
	for _, f := range p.files {
		if !ast.IsGenerated(f) {
			index[p.file(f.Package)] = len(files)
			files = append(files, p.file(f.Package))
		}
	}
	g := make(graph, len(files))
	a := arrows{pkg: p.short()}
	for ft := range names {
		g[index[ft.from]] = append(g[index[ft.from]], index[ft.to])
		a.all++
	}
	for _, out := range g {
		slices.Sort(out)
	}
	order, searched := g.order()
	a.searched = searched
	at := map[string]int{}
	for i, f := range order {
		a.order = append(a.order, files[f])
		at[files[f]] = i
	}
	for ft, n := range names {
		if at[ft.from] > at[ft.to] {
			a.backUp = append(a.backUp, arrow{ft.from, ft.to, slices.Sorted(maps.Keys(n))})
		}
	}
	slices.SortFunc(a.backUp, func(x, y arrow) int {
		return cmp.Or(cmp.Compare(at[x.from], at[y.from]), cmp.Compare(at[x.to], at[y.to]))
	})
	return a
}

type fromTo struct{ from, to string }

// namesBetween has the names that one file uses of another, for each pair of files that has some.
func namesBetween(p *pkg) map[fromTo]map[string]bool {
	generated := map[string]bool{}
	for _, f := range p.files {
		generated[p.file(f.Package)] = ast.IsGenerated(f)
	}
	found := map[fromTo]map[string]bool{}
	for id, obj := range p.info.Uses {
		if obj.Pkg() != p.types || !obj.Pos().IsValid() {
			continue
		}
		ft := fromTo{p.file(id.Pos()), p.file(obj.Pos())}
		if ft.from == ft.to || generated[ft.from] || generated[ft.to] {
			continue
		}
		if found[ft] == nil {
			found[ft] = map[string]bool{}
		}
		found[ft][obj.Name()] = true
	}
	return found
}
