package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	verbose := flag.Bool("v", false, "list the arrows that run back up with the names that make them, the order of the files, and the locks")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: rooms [-v] [packages]")
		flag.PrintDefaults()
	}
	flag.Parse()
	over, err := run(os.Stdout, *verbose, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "rooms:", err)
		os.Exit(2)
	}
	if len(over) > 0 {
		fmt.Printf("\n%d over their bars\n", len(over))
		os.Exit(1)
	}
}

// run prints the figures and returns what is over its bar.
func run(w io.Writer, verbose bool, patterns []string) (over []string, err error) {
	project := len(patterns) == 0
	if project {
		patterns = []string{"./..."}
	}
	pkgs, err := load(patterns...)
	if err != nil {
		return nil, err
	}
	c, err := count(pkgs)
	if err != nil {
		return nil, err
	}
	c.printArrows(w, verbose)
	c.printMethods(w)
	c.printLengths(w)
	if project {
		if err := printProject(w, verbose, pkgs); err != nil {
			return nil, err
		}
	}
	return c.over(), nil
}

// counted are the figures that have a bar.
type counted struct {
	arrows  []arrows
	methods []methods // the largest first
	lengths []length  // likewise
}

func count(pkgs []*pkg) (c counted, err error) {
	for _, p := range pkgs {
		c.arrows = append(c.arrows, arrowsOf(p))
		c.methods = append(c.methods, methodsOf(p)...)
		l, err := lengthsOf(p)
		if err != nil {
			return c, err
		}
		c.lengths = append(c.lengths, l...)
	}
	slices.SortStableFunc(c.methods, func(a, b methods) int { return cmp.Compare(b.all(), a.all()) })
	slices.SortStableFunc(c.lengths, func(a, b length) int { return cmp.Compare(b.lines, a.lines) })
	return c, nil
}

// over names what is over its bar.
func (c counted) over() (names []string) {
	for _, a := range c.arrows {
		if a.over() {
			names = append(names, "arrows of "+a.pkg)
		}
	}
	for _, m := range c.methods {
		if m.over() {
			names = append(names, "methods of "+m.name)
		}
	}
	for _, l := range c.lengths {
		if l.over() {
			names = append(names, "lines of "+l.file)
		}
	}
	return names
}

func mark(over bool) string {
	if over {
		return "  OVER"
	}
	return ""
}

func (c counted) printArrows(w io.Writer, verbose bool) {
	fmt.Fprintf(w, "%-40s %5s %6s %7s %8s\n", "package", "files", "arrows", "back up", "percent")
	for _, a := range c.arrows {
		searched := ""
		if a.searched {
			searched = "  searched"
		}
		fmt.Fprintf(w, "%-40s %5d %6d %7d %7.1f%%%s%s\n", a.pkg, len(a.order), a.all, len(a.backUp), a.percent(), searched, mark(a.over()))
		if !verbose || len(a.backUp) == 0 {
			continue
		}
		fmt.Fprintf(w, "    from top to bottom: %s\n", strings.Join(a.order, " "))
		for _, b := range a.backUp {
			fmt.Fprintf(w, "    %s -> %s: %s\n", b.from, b.to, strings.Join(b.names, ", "))
		}
	}
}

func (c counted) printMethods(w io.Writer) {
	fmt.Fprintf(w, "\n%-50s %7s %4s %8s %9s\n", "structs with the most methods", "methods", "own", "promoted", "functions")
	for i, m := range c.methods {
		if i >= 10 && !m.over() {
			break
		}
		fmt.Fprintf(w, "%-50s %7d %4d %8d %9d%s\n", m.name, m.all(), m.own, m.promoted, m.funcs, mark(m.over()))
	}
}

func (c counted) printLengths(w io.Writer) {
	fmt.Fprintf(w, "\n%-60s %5s\n", "longest files", "lines")
	for i, l := range c.lengths {
		if i >= 5 && !l.over() {
			break
		}
		fmt.Fprintf(w, "%-60s %5d%s\n", l.file, l.lines, mark(l.over()))
	}
}

// printProject prints what is counted of the project as a whole, and has no bar.
func printProject(w io.Writer, verbose bool, pkgs []*pkg) error {
	l := locksOf(pkgs)
	fmt.Fprintf(w, "\nlocks: %d in the table of internal/lock, %d other mutexes in the store, %d in the rest of the project\n", l.table, len(l.store), len(l.others))
	if verbose {
		for _, m := range slices.Concat(l.store, l.others) {
			fmt.Fprintf(w, "    %s\n", m)
		}
	}
	n, err := docLines(pkgs[0].Module.Dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "go doc -all ./db: %d lines\n", n)
	return nil
}
