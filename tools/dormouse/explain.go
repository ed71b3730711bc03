package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

func newExplain() *cobra.Command {
	var store string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "explain", Short: "Show the text where prompts parted from what is stored", Args: cobra.NoArgs,
		Long: `Show, of the last 20 requests that reused little, where their prompts parted from the nearest stored one: the 40 characters on each side. The texts are
kept only by a dormouse serve that was started with --explain, in its memory, and are shown to nobody but its user on this machine.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd, "store"); err != nil {
				return err
			}
			dir, err := frontOf(cmd.Context(), store)
			if err != nil {
				return err
			}
			var list []llamaserver.Explained
			if err := ask(cmd.Context(), dir, "GET", "/explain", nil, &list); err != nil {
				return errWork{err}
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(list)
			}
			printExplained(cmd, list)
			return nil
		},
	}
	storeFlag(cmd.Flags(), &store)
	cmd.Flags().BoolVar(&asJSON, "json", false, "as one JSON array")
	return cmd
}

// printExplained prints texts as Go writes them in quotes: without control characters.
func printExplained(cmd *cobra.Command, list []llamaserver.Explained) {
	out := cmd.OutOrStdout()
	if len(list) == 0 {
		fmt.Fprintln(out, "no request parted from what is stored since dormouse serve was started")
	}
	for _, x := range list {
		age := ""
		if x.Age > 0 {
			age = ", stored " + figures.Ago(x.Age) + " before"
		}
		fmt.Fprintf(out, "%s  %s  %s\n", x.Ended.Format(time.TimeOnly), cmp.Or(x.Client, "unknown client"), x.Endpoint)
		fmt.Fprintf(out, "  parted  at token %s of %s, in: %s%s\n", figures.Comma(x.Token), figures.Comma(x.Asked), cmp.Or(x.Part, "unknown"), age)
		if x.Cause != "" {
			fmt.Fprintf(out, "  cause   %s: %s\n", x.Cause, x.Advice)
		}
		fmt.Fprintf(out, "  common  %s\n  this    %s\n  other   %s\n", quoted(x.Before), quoted(x.Mine), quoted(x.Theirs))
	}
}

// quoted is a text in quotes, with control characters and what terminals may take for a command escaped.
func quoted(t string) string {
	if t == "" {
		return "(nothing)"
	}
	return strconv.Quote(t)
}
