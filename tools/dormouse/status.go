package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

func newStatus() *cobra.Command {
	var store string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status", Short: "Say how the dormouse serve is that runs, or, without --store, all that run here", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd, "store"); err != nil {
				return err
			}
			dir, err := storeDir(store)
			if err != nil {
				return err
			}
			all, err := statuses(cmd.Context(), dir, store == "")
			if err != nil {
				return errWork{err}
			}
			for i, s := range all {
				switch {
				case asJSON:
					if err := json.NewEncoder(cmd.OutOrStdout()).Encode(s); err != nil {
						return err
					}
				case i > 0:
					fmt.Fprintln(cmd.OutOrStdout())
					fallthrough
				default:
					printStatus(cmd, s)
				}
			}
			return nil
		},
	}
	storeFlag(cmd.Flags(), &store)
	cmd.Flags().BoolVar(&asJSON, "json", false, "as one JSON object")
	return cmd
}

func printStatus(cmd *cobra.Command, s llamaserver.Status) {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "store    %s: %s", s.Dir, s.Store)
	if s.Budget > 0 {
		fmt.Fprintf(out, ", %s of %s", humanize.IBytes(uint64(s.Bytes)), humanize.IBytes(uint64(s.Budget)))
	}
	fmt.Fprintln(out)
	if s.NotStoring != "" {
		fmt.Fprintf(out, "warning  %s (serve --min-free)\n", s.NotStoring)
	}
	switch {
	case s.Server != "" && s.ServerPID > 0:
		fmt.Fprintf(out, "server   %s, process %d, started %s\n", s.Server, s.ServerPID, times(s.Started))
	case s.Server != "":
		fmt.Fprintf(out, "server   %s\n", s.Server)
	}
	if s.SlotFiles != "" {
		fmt.Fprintf(out, "slots    %s\n", s.SlotFiles)
	}
	for _, n := range s.Normalized {
		fmt.Fprintf(out, "rule     %s (%s): %s in %s\n", n.Rule, n.From, n.Action, english.Plural(int(n.Requests), "request", ""))
	}
	for _, m := range s.Models {
		switch {
		case m.Refused != "":
			fmt.Fprintf(out, "model    %s: nothing is kept: %s\n", m.Name, m.Refused)
		case m.Fingerprint == "":
			fmt.Fprintf(out, "model    %s: being looked at\n", m.Name)
		default:
			fmt.Fprintf(out, "model    %s (%s)\n", m.Name, m.Fingerprint)
		}
		for _, r := range m.Resting {
			fmt.Fprintf(out, "resting  %s is left alone for now: %s; tried again after %d requests, or %s\n", r.Case, figures.Words(r.Reason), r.Requests, r.Within)
		}
		if len(m.Slots) > 0 {
			t := table.NewWriter()
			t.SetOutputMirror(out)
			t.SetStyle(table.StyleLight)
			t.AppendHeader(table.Row{"slot", "tokens", "state"})
			for _, sl := range m.Slots {
				state := "idle"
				switch {
				case sl.Busy:
					state = "at work"
				case sl.Unsaved:
					state = "idle, not saved yet"
				}
				t.AppendRow(table.Row{sl.ID, figures.Comma(sl.Tokens), state})
			}
			t.Render()
		}
	}
	printRequests(out, s)
}

// times is how often.
func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return figures.Comma(n) + " times"
}

func newPurge() *cobra.Command {
	var store string
	var sharedDir bool
	var p llamaserver.Purge
	cmd := &cobra.Command{
		Use: "purge", Short: "Delete what is kept, of a model, of an API key, or all", Args: cobra.NoArgs,
		Long:    "Delete what is kept. It works while dormouse serve runs, and when it does not.",
		Example: "  dormouse purge --all\n  dormouse purge --model \"Gemma 3 270M\"\n  dormouse purge --key sk-123",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd, "store", "allow-shared-dir"); err != nil {
				return err
			}
			dir, err := storeDir(store)
			if err != nil {
				return err
			}
			if said := p.Model != "" || p.Key != "" || p.All; !said {
				return llamaserver.ErrPurge
			}
			body, err := json.Marshal(p)
			if err != nil {
				return err
			}
			var out llamaserver.Purged
			err = ask(cmd.Context(), dir, "POST", "/purge", bytes.NewReader(body), &out)
			if errors.Is(err, errNoFront) {
				out, err = purgeClosed(cmd, dir, sharedDir, p)
			}
			if err != nil {
				return errWork{err}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "purged: %s, %s, %s\n", english.Plural(out.Models, "model", ""), english.Plural(out.Sessions, "conversation", ""),
				humanize.IBytes(uint64(out.Bytes)))
			return nil
		},
	}
	storeFlag(cmd.Flags(), &store)
	sharedFlag(cmd.Flags(), &sharedDir)
	cmd.Flags().StringVar(&p.Model, "model", "", "a model, by name or fingerprint")
	cmd.Flags().StringVar(&p.Key, "key", "", "what requests with this API key have stored (serve --scope-by-key)")
	cmd.Flags().BoolVar(&p.All, "all", false, "everything, conversations too")
	cmd.MarkFlagsMutuallyExclusive("model", "key", "all")
	return cmd
}

// purgeClosed purges a store that nobody has open.
func purgeClosed(cmd *cobra.Command, dir string, sharedDir bool, p llamaserver.Purge) (out llamaserver.Purged, err error) {
	if _, err := os.Stat(filepath.Join(dir, "FORMAT")); err != nil {
		return out, fmt.Errorf("%s: there is no store: %w", dir, err)
	}
	s, err := db.Open(cmd.Context(), dir, db.Options{Budget: 1 << 50, AllowSharedDir: sharedDir}) // nothing is to be evicted
	if err != nil {
		return out, err
	}
	out, err = llamaserver.PurgeStore(cmd.Context(), s, p)
	return out, errors.Join(err, s.Close())
}
