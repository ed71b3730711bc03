package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
)

func newRepair(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "repair DIR NEWDIR",
		Short: "Save what is sound of a damaged store into a new one",
		Long: "Repair makes a new store in NEWDIR, which must be missing or empty, and copies into it every record of the store in\n" +
			"DIR that is as it was written and whose prefix is, with the models and refs. It changes nothing in DIR. What could\n" +
			"not be saved is named with its file, offset and reason; then the exit code is 1. Interrupted, it leaves no NEWDIR.",
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

type lostRecordJSON struct {
	File      string `json:"file"`
	Offset    int64  `json:"offset"`
	Bytes     int64  `json:"bytes,omitempty"`
	Block     string `json:"block,omitempty"`
	Group     int    `json:"group"`
	Model     string `json:"model,omitempty"`
	ModelName string `json:"model_name,omitempty"`
	First     int    `json:"first"`
	Tokens    int    `json:"tokens"`
	Prefix    string `json:"lost_prefix,omitempty"`
	Error     string `json:"error"`
}

type lostRefJSON struct {
	Name  string `json:"name"`
	Model string `json:"model"`
	Block string `json:"block"`
	Error string `json:"error"`
}

type lostSessionJSON struct {
	Scope  string `json:"scope"`
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Frames int    `json:"frames_saved"`
	Error  string `json:"error"`
}

type repairJSON struct {
	Whole     bool             `json:"whole"`
	Blocks    int              `json:"blocks"`
	Records   int              `json:"records"`
	Bytes     int64            `json:"bytes"`
	Models    int              `json:"models"`
	Refs      int              `json:"refs"`
	LostBytes int64            `json:"lost_bytes"`
	Lost      []lostRecordJSON `json:"lost"`
	LostRefs  []lostRefJSON    `json:"lost_refs"`

	Sessions     int               `json:"sessions"`
	LostSessions []lostSessionJSON `json:"lost_sessions"`

	Damage  []damageJSON `json:"damage"`
	Unknown string       `json:"unknown"`
	Notes   []string     `json:"notes"`
}

func printRepair(cmd *cobra.Command, c *common, dir string, r *admin.Repaired) error {
	out := cmd.OutOrStdout()
	if c.json {
		return printJSON(out, repairDocument(r))
	}
	printLost(out, r)
	for _, d := range r.Damage {
		fmt.Fprintln(out, "damage:", d)
	}
	if r.Unknown != "" {
		fmt.Fprintln(out, "unknown:", r.Unknown)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(out, "note:", n)
	}
	fmt.Fprintf(out, "saved: %s, %s (%s), %s, %s in %s\n",
		count(r.Blocks, "block"), count(r.Records, "record"), size(r.Bytes), count(r.Models, "model"), count(r.Refs, "ref"), dir)
	if r.Sessions > 0 {
		fmt.Fprintf(out, "saved: %s\n", count(r.Sessions, "session"))
	}
	switch {
	case len(r.Lost) > 0 || len(r.LostRefs) > 0:
		fmt.Fprintf(out, "lost: %s (%s), %s\n", count(len(r.Lost), "record"), size(r.LostBytes()), count(len(r.LostRefs), "ref"))
	case len(r.LostSessions) > 0: // each was named
	case r.Whole():
		fmt.Fprintln(out, "nothing is lost")
	default:
		fmt.Fprintln(out, "no record is known to be lost")
	}
	return nil
}

// printLost names each record that is damaged, and counts those that go with it.
func printLost(out io.Writer, r *admin.Repaired) {
	type follow struct {
		records int
		bytes   int64
	}
	behind := map[kv.Key]follow{}
	for _, l := range r.Lost {
		if !l.Prefix.IsZero() {
			f := behind[l.Prefix]
			behind[l.Prefix] = follow{f.records + 1, f.bytes + l.Bytes}
		}
	}
	with := func(k kv.Key) {
		if f := behind[k]; f.records > 0 {
			fmt.Fprintf(out, "  and %s (%s) that cannot be used without it\n", count(f.records, "record"), size(f.bytes))
			delete(behind, k)
		}
	}
	for _, l := range r.Lost {
		switch {
		case !l.Prefix.IsZero():
		case l.Block.IsZero():
			fmt.Fprintf(out, "lost: a record of which nothing else tells: %v\n", l.Err)
		default:
			fmt.Fprintf(out, "lost: block %s group %d of %s, tokens [%d, %d), %s: %v\n",
				short(l.Block.String()), l.Group, modelName(l), l.First, l.First+l.Tokens, size(l.Bytes), l.Err)
			if l.Group == 0 {
				with(l.Block)
			}
		}
	}
	for _, l := range r.Lost { // what hangs from blocks of which there is no trace
		if _, ok := behind[l.Prefix]; ok && !l.Prefix.IsZero() {
			fmt.Fprintf(out, "lost: block %s of %s, which is nowhere to be found\n", short(l.Prefix.String()), modelName(l))
			with(l.Prefix)
		}
	}
	for _, l := range r.LostRefs {
		fmt.Fprintf(out, "lost: ref %q: %v\n", l.Ref.Name, l.Err)
	}
	for _, l := range r.LostSessions {
		fmt.Fprintf(out, "lost: of session %s all behind %s: %v\n", short(l.Scope.String()), count(l.Frames, "frame"), l.Err)
	}
}

func modelName(l admin.LostRecord) string {
	if l.ModelName == "" {
		return short(l.Model.String())
	}
	return l.ModelName
}

// idOf prints an id; one that is not known is empty.
func idOf[T interface {
	comparable
	String() string
}](id T) string {
	var none T
	if id == none {
		return ""
	}
	return id.String()
}

func repairDocument(r *admin.Repaired) repairJSON {
	j := repairJSON{
		Whole: r.Whole(), Blocks: r.Blocks, Records: r.Records, Bytes: r.Bytes, Models: r.Models, Refs: r.Refs, LostBytes: r.LostBytes(),
		Sessions: r.Sessions, LostSessions: []lostSessionJSON{},
		Lost: []lostRecordJSON{}, LostRefs: []lostRefJSON{}, Damage: []damageJSON{},
		Unknown: r.Unknown, Notes: append([]string{}, r.Notes...),
	}
	for _, l := range r.Lost {
		j.Lost = append(j.Lost, lostRecordJSON{
			File: l.File, Offset: l.Offset, Bytes: l.Bytes, Block: idOf(l.Block), Group: l.Group, Model: idOf(l.Model), ModelName: l.ModelName,
			First: l.First, Tokens: l.Tokens, Prefix: idOf(l.Prefix), Error: l.Err.Error(),
		})
	}
	for _, l := range r.LostRefs {
		j.LostRefs = append(j.LostRefs, lostRefJSON{l.Ref.Name, l.Ref.Model.String(), l.Ref.Block.String(), l.Err.Error()})
	}
	for _, l := range r.LostSessions {
		j.LostSessions = append(j.LostSessions, lostSessionJSON{l.Scope.String(), l.File, l.Offset, l.Frames, l.Err.Error()})
	}
	for _, d := range r.Damage {
		j.Damage = append(j.Damage, damageJSON{d.File, d.Offset, d.What, d.Expected, d.Found, d.Error()})
	}
	return j
}
