package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const house = "tools/rooms/testdata/house"

// The figures of testdata/house are known by hand. Roof uses wall and floor, wall uses floor, and floor uses roof: of 4 arrows the last one runs back
// up. What a program wrote, tests, and files of other systems have none.
func TestHouse(t *testing.T) {
	pkgs, err := load("./testdata/house")
	if err != nil {
		t.Fatal(err)
	}
	a := arrowsOf(pkgs[0])
	if got, want := fmt.Sprint(a), "{"+house+" [roof.go wall.go floor.go] 4 [{floor.go roof.go [Roof Snow]}] false}"; got != want {
		t.Errorf("arrows: %s, not %s", got, want)
	}
	if a.percent() != 25 || a.over() {
		t.Errorf("%v %%, over: %v; a package of 4 arrows has no bar", a.percent(), a.over())
	}
	if got, want := fmt.Sprint(methodsOf(pkgs[0])), "[{"+house+".Roof 2 4 2} {"+house+".Wall 2 0 1} {"+house+".Floor 1 1 0} {"+house+".cellar 1 0 0}]"; got != want {
		t.Errorf("methods: %s, not %s", got, want)
	}
	lengths, err := lengthsOf(pkgs[0])
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, l := range lengths {
		files = append(files, strings.TrimPrefix(l.file, house+"/"))
	}
	if got, want := strings.Join(files, " "), "floor.go house_test.go other_windows.go roof.go wall.go"; got != want {
		t.Errorf("files: %s, not %s", got, want)
	}
	if lengths[0] != (length{house + "/floor.go", 15}) {
		t.Errorf("lines: %v", lengths[0])
	}
	if l := locksOf(pkgs); fmt.Sprint(l) != "{0 [] ["+house+"/floor.go: mu]}" {
		t.Errorf("locks: %v", l)
	}
}

// What is over a bar is named, and what is at it is not.
func TestBars(t *testing.T) {
	c := counted{
		arrows: []arrows{
			{pkg: "few", all: 7, backUp: make([]arrow, 7)},
			{pkg: "at", all: 20, backUp: make([]arrow, 3)},
			{pkg: "above", all: 19, backUp: make([]arrow, 3)},
		},
		methods: []methods{{"above.T", 40, 30, 1}, {"at.T", 40, 30, 0}},
		lengths: []length{{"above.go", 401}, {"at.go", 400}},
	}
	if got, want := strings.Join(c.over(), "; "), "arrows of above; methods of above.T; lines of above.go"; got != want {
		t.Errorf("over: %s, not %s", got, want)
	}
}

// The search finds the best order wherever that can be computed, and the files of a large circle that has one arrow back up.
func TestSearch(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		g := make(graph, 9)
		for v := range g {
			for w := range g {
				if v != w && random.IntN(3) == 0 {
					g[v] = append(g[v], w)
				}
			}
		}
		for _, circle := range g.circles() {
			if len(circle) == 1 {
				continue
			}
			best, found := backUp(g.best(circle), g.matrix()), backUp(g.search(circle), g.matrix())
			if best != found {
				t.Errorf("%v: the search finds %d arrows back up, and the best order has %d", g, found, best)
			}
		}
	}

	g := make(graph, largestExact+10)
	names := random.Perm(len(g))
	for i := range g {
		for j := i + 1; j < len(g); j++ {
			if j == i+1 || random.IntN(3) == 0 {
				g[names[i]] = append(g[names[i]], names[j])
			}
		}
	}
	if order, searched := g.order(); searched || backUp(order, g.matrix()) != 0 {
		t.Errorf("without a circle: %d arrows back up, searched: %v", backUp(order, g.matrix()), searched)
	}
	g[names[len(g)-1]] = append(g[names[len(g)-1]], names[0])
	order, searched := g.order()
	if n := backUp(order, g.matrix()); n != 1 || !searched {
		t.Errorf("with one arrow that closes a circle: %d arrows back up, searched: %v", n, searched)
	}
	if again, _ := g.order(); !slices.Equal(again, order) {
		t.Error("the order is another one the second time")
	}
}

// No package of the project is over a bar.
func TestProject(t *testing.T) {
	t.Chdir("../..")
	over, err := run(io.Discard, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range over {
		t.Errorf("%s: over the bar (go run ./tools/rooms -v)", name)
	}
}
