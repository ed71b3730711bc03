package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// place is something wrong at one place of a file.
type place struct{ file, text string }

// placesShown is how many places of one file are listed without -v.
const placesShown = 5

// addVerbose gives a command the flag that lists all places.
func addVerbose(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVarP(to, "verbose", "v", false, fmt.Sprintf("list every damaged place, not only the first %d of a file", placesShown))
}

// printPlaces lists places, and counts those of a file that are too many to be read.
func printPlaces(out io.Writer, before string, all []place, verbose bool) {
	of, seen := map[string]int{}, map[string]int{}
	for _, p := range all {
		of[p.file]++
	}
	for _, p := range all {
		seen[p.file]++
		switch n := of[p.file]; {
		case verbose, n <= placesShown+1, seen[p.file] <= placesShown:
			fmt.Fprintf(out, "%s%s\n", before, p.text)
		case seen[p.file] == n:
			fmt.Fprintf(out, "  and %d more damaged places in %s; -v lists them\n", n-placesShown, p.file)
		}
	}
}
