package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newInspect(c *common) *cobra.Command {
	f := &inspectFlags{}
	cmd := &cobra.Command{
		Use:   "inspect DIR",
		Short: "Show models, blocks, scopes, refs, segments, log and Bloom filter",
		Long: "Inspect shows what is in the store, as far as that takes no reading of rows. Exit code 1 means that it came upon\n" +
			"damage; only verify looks for it everywhere. Where a process has the store open, it shows what that one's last\n" +
			"checkpoint wrote, and how old that is.\n\n" +
			"Hits are matches that used a block: that ended in it, or in one behind it that is still stored. Last used is to the\n" +
			"minute, and - if that is not known: after the index was rebuilt, and of what a process stored in its last seconds\n" +
			"that was killed.",
		Args: oneStore,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.validate(cmd); err != nil {
				return err
			}
			report, done := bar(c, cmd.ErrOrStderr())
			defer done()
			s, err := openReadOnly(cmd, c, args[0], report)
			if err != nil {
				return errWork{err}
			}
			defer s.Close()
			inv, err := takeInventory(cmd.Context(), s, f, report)
			if err == nil {
				err = f.names.resolve(s)
			}
			done()
			if misuse := (errMisuse{}); errors.As(err, &misuse) {
				return err
			}
			if err != nil {
				return errWork{err}
			}
			if lost := lostFormat(args[0]); lost != "" {
				inv.problem(args[0], lost)
			}
			inv.nameScopes(&f.names)
			if c.json {
				if inv.Blocks, _ = f.chosen(inv); !f.blocks && f.top == 0 {
					inv.Blocks = nil
				}
				f.leaveOut(inv)
				err = printJSON(cmd.OutOrStdout(), inv)
			} else {
				printInventory(cmd.OutOrStdout(), inv, f)
			}
			if err == nil && (len(inv.Problems) > 0 || inv.Damaged > 0) {
				err = errDamage
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&f.blocks, "blocks", false, "list every record")
	cmd.Flags().IntVar(&f.top, "top", 0, "list `N` records: the first of --sort")
	cmd.Flags().StringVar(&f.sort, "sort", "", "`order` of the list: bytes (largest first; for --top without --sort), hits (most used first) or age\n(used longest ago first)")
	cmd.Flags().BoolVar(&f.tree, "tree", false, "draw the prefix tree")
	cmd.Flags().IntVar(&f.depth, "depth", 8, "how many `forks` deep the tree is drawn")
	cmd.Flags().StringVar(&f.model, "model", "", "show one `model`: by name, or fingerprint or its first 8 digits or more; NAME@latest and NAME@superseded are versions.\nScopes, refs, codecs, segments and records are then of that model")
	cmd.Flags().StringSliceVar(&f.only, "only", nil, "show these `sections`, separated by commas: models, scopes, refs, sessions, codecs, segments, log, bloom")
	f.names.add(cmd)
	addVerbose(cmd, &f.verbose)
	return cmd
}
