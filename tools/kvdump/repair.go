package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
)

func newRepair(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "repair DIR NEWDIR",
		Short: "Copy what is whole of a damaged store into a new one",
		Long: "Repair makes a new store in NEWDIR, which must be missing or empty. It copies every record of the store in DIR that\n" +
			"is whole and whose prefix is, and all models, refs, notes and sessions. It changes nothing in DIR. It names each file\n" +
			"of which something is lost, with counts and the first damage; then the exit code is 1. Interrupted, it leaves no NEWDIR.",
		Args: twoStores,
		RunE: func(cmd *cobra.Command, args []string) error {
			report, done := bar(c, cmd.ErrOrStderr())
			r, err := admin.Repair(cmd.Context(), args[0], args[1], admin.RepairOptions{Progress: report, AllowSharedDir: c.sharedDir})
			done()
			if errors.Is(err, db.ErrNotEmpty) {
				return err
			}
			if err != nil {
				return errWork{err}
			}
			if err := printRepair(cmd, c, args[1], &r); err != nil {
				return err
			}
			if !r.Whole() {
				return errDamage
			}
			return nil
		},
	}
}

type damagedFileJSON struct {
	File      string `json:"file"`
	Lost      int    `json:"lost"`
	LostBytes int64  `json:"lost_bytes"`
	Offset    int64  `json:"offset"`
	Error     string `json:"error"`
}

type repairJSON struct {
	Whole    bool  `json:"whole"`
	Blocks   int   `json:"blocks"`
	Records  int   `json:"records"`
	Bytes    int64 `json:"bytes"`
	Models   int   `json:"models"`
	Refs     int   `json:"refs"`
	Sessions int   `json:"sessions"`

	Lost       int               `json:"lost"`
	LostBytes  int64             `json:"lost_bytes"`
	LostModels int               `json:"lost_models"`
	Files      []damagedFileJSON `json:"files"`
	Unknown    string            `json:"unknown"`
	Notes      []string          `json:"notes"`
}

func printRepair(cmd *cobra.Command, c *common, dir string, r *admin.Repaired) error {
	out := cmd.OutOrStdout()
	if c.json {
		return printJSON(out, repairDocument(r))
	}
	for _, f := range r.Files {
		switch {
		case f.Lost > 0:
			fmt.Fprintf(out, "lost: %s (%s): %v\n", count(f.Lost, "record"), size(f.LostBytes), f.Err)
		case f.LostBytes > 0:
			fmt.Fprintf(out, "lost: the end of a session (%s): %v\n", size(f.LostBytes), f.Err)
		default:
			fmt.Fprintln(out, "damage:", f.Err)
		}
	}
	if r.Unknown != "" {
		fmt.Fprintln(out, "unknown:", r.Unknown)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(out, "note:", n)
	}
	fmt.Fprintf(out, "saved: %s, %s (%s), %s, %s, %s in %s\n", count(r.Blocks, "block"), count(r.Records, "record"), size(r.Bytes),
		count(r.Models, "model"), count(r.Refs, "ref"), count(r.Sessions, "session"), dir)
	switch {
	case r.Whole():
		fmt.Fprintln(out, "nothing is lost")
	case r.Lost+r.LostModels == 0 && r.LostBytes == 0:
		fmt.Fprintln(out, "no record is known to be lost")
	default:
		fmt.Fprintf(out, "lost: %s, %s, %s in all\n", count(r.Lost, "record"), count(r.LostModels, "model"), size(r.LostBytes))
	}
	return nil
}

func repairDocument(r *admin.Repaired) repairJSON {
	j := repairJSON{
		Whole: r.Whole(), Blocks: r.Blocks, Records: r.Records, Bytes: r.Bytes, Models: r.Models, Refs: r.Refs, Sessions: r.Sessions,
		Lost: r.Lost, LostBytes: r.LostBytes, LostModels: r.LostModels, Files: []damagedFileJSON{},
		Unknown: r.Unknown, Notes: append([]string{}, r.Notes...),
	}
	for _, f := range r.Files {
		j.Files = append(j.Files, damagedFileJSON{f.Path, f.Lost, f.LostBytes, f.Offset, f.Err.Error()})
	}
	return j
}
