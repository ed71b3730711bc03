package main

import (
	"fmt"

	"github.com/dormousekv/dormouse/db/admin"
	"github.com/spf13/cobra"
)

func newVerify(c *common) *cobra.Command {
	var verbose bool
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Read every byte of every file and compare it with its checksum",
		Long:  "Verify reads every byte of every file of the store. It prints a summary, and names each damage with file,\noffset, what was expected and what was found. Exit code 1 means damage. Of a file with many damaged places it lists\nthe first, and counts the others; -v lists all, and so does --json.",
		Args:  oneStore,
		RunE: func(cmd *cobra.Command, args []string) error {
			report, done := bar(c, cmd.ErrOrStderr())
			r, err := admin.Verify(cmd.Context(), args[0], admin.VerifyOptions{Progress: report, AllowSharedDir: c.sharedDir})
			done()
			if stopped := cmd.Context().Err(); stopped != nil {
				return errWork{stopped} // "no damage" is only said of all
			}
			if err != nil && r.Files == 0 {
				return errWork{err}
			}
			if lost := lostFormat(args[0]); lost != "" {
				r.Notes = append(r.Notes, lost)
			}
			if err := printVerify(cmd, c, r, err == nil, verbose); err != nil {
				return err
			}
			if err != nil {
				return errWork{fmt.Errorf("not all could be read: %w", err)}
			}
			if len(r.Damage) > 0 {
				return errDamage
			}
			return nil
		},
	}
	addVerbose(cmd, &verbose)
	return cmd
}

type damageJSON struct {
	File     string `json:"file"`
	Offset   int64  `json:"offset"`
	What     string `json:"what"`
	Expected string `json:"expected,omitempty"`
	Found    string `json:"found,omitempty"`
	Error    string `json:"error"`
}

type verifyJSON struct {
	OK      bool         `json:"ok"`
	Files   int          `json:"files"`
	Records int          `json:"records"`
	Bytes   int64        `json:"bytes"`
	Damage  []damageJSON `json:"damage"`
	Notes   []string     `json:"notes"`
}

func printVerify(cmd *cobra.Command, c *common, r admin.Report, all, verbose bool) error {
	out := cmd.OutOrStdout()
	if c.json {
		j := verifyJSON{OK: all && len(r.Damage) == 0, Files: r.Files, Records: r.Records, Bytes: r.Bytes, Damage: []damageJSON{}, Notes: r.Notes}
		if j.Notes == nil {
			j.Notes = []string{}
		}
		for _, d := range r.Damage {
			j.Damage = append(j.Damage, damageJSON{d.File, d.Offset, d.What, d.Expected, d.Found, d.Error()})
		}
		return printJSON(out, j)
	}
	var places []place
	for _, d := range r.Damage {
		places = append(places, place{d.File, d.Error()})
	}
	printPlaces(out, "", places, verbose)
	for _, n := range r.Notes {
		fmt.Fprintln(out, "note:", n)
	}
	verdict := "no damage"
	if !all {
		verdict = "no damage in what could be read"
	}
	if n := len(r.Damage); n > 0 {
		verdict = count(n, "damaged place")
	}
	fmt.Fprintf(out, "%s: %s, %s, %s checked\n", verdict, count(r.Files, "file"), count(r.Records, "record"), size(r.Bytes))
	return nil
}
