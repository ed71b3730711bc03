package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

func table(w io.Writer, fn func(w io.Writer)) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fn(t)
	_, err := fmt.Fprintln(t)
	if err != nil {
		return err
	}
	return t.Flush()
}

// writeResults prints a row for each way: a lookup's time, what it is of the first way's, index reads, and those that a filter's false
// yes caused, in a thousand lookups.
func writeResults(w io.Writer, title string, all []*searcher, results []result) error {
	return table(w, func(w io.Writer) {
		fmt.Fprintf(w, "%s\tus\tratio\tindex reads\tfalse in 1,000\tfilter KiB\n", title)
		for i, s := range all {
			x := &results[i]
			fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%d\n", s.name, median(x.nanos)/1e3, median(ratios(x.nanos, results[0].nanos)),
				float64(x.reads)/float64(x.lookups), 1e3*float64(x.wrong)/float64(x.lookups), s.bytes()>>10)
		}
	})
}

func writeFiles(w io.Writer, title string, all []*searcher, millis [][]float64, bytes []int64) error {
	return table(w, func(w io.Writer) {
		fmt.Fprintf(w, "%s\tms\tratio\tKiB\n", title)
		for i, s := range all {
			fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%d\n", s.name, median(millis[i]), median(ratios(millis[i], millis[0])), bytes[i]>>10)
		}
	})
}

func writeAlone(w io.Writer, title string, names []string, bytes []int64, absent, search [][]float64) error {
	return table(w, func(w io.Writer) {
		fmt.Fprintf(w, "%s\tabsent opening, ns\tratio\tsearch, ns\tratio\tMiB\n", title)
		for i, name := range names {
			fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.0f\t%.2f\t%d\n", name, median(absent[i]), median(ratios(absent[i], absent[0])),
				median(search[i]), median(ratios(search[i], search[0])), bytes[i]>>20)
		}
	})
}
