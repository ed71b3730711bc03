package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
)

type compactJSON struct {
	FormatRestored    bool  `json:"format_restored"`
	SegmentsRewritten int   `json:"segments_rewritten"`
	RecordsMoved      int   `json:"records_moved"`
	BytesMoved        int64 `json:"bytes_moved"`
	BytesBefore       int64 `json:"bytes_before"`
	BytesAfter        int64 `json:"bytes_after"`
}

func newCompact(c *common) *cobra.Command {
	var share float64
	cmd := &cobra.Command{
		Use:   "compact DIR",
		Short: "Give space back: move live records out of segments that are mostly dead, rewrite the index",
		Long: "Compact gives space back: it moves live records out of segments that are mostly dead, merges small segments, and\n" +
			"rewrites the index. It throws no record away and makes no store larger; where nothing is to be gained it changes\n" +
			"nothing. What is lost and can be made anew (FORMAT, the index, the Bloom filter) is. Interrupted, it keeps what\n" +
			"is done, and the store is whole.",
		Args: oneStore,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !(share > 0 && share <= 1) {
				return fmt.Errorf("--live-share %g: expected a number above 0, and at most 1", share)
			}
			lost, err := admin.LostFormat(args[0])
			if err != nil {
				return errWork{err}
			}
			report, done := bar(c, cmd.ErrOrStderr())
			warned := &warnings{}
			r, err := admin.Compact(cmd.Context(), args[0], admin.CompactOptions{
				CompactOptions: db.CompactOptions{LiveShare: share, Progress: report}, AllowSharedDir: c.sharedDir, Logger: slog.New(warned),
			})
			done()
			warned.print(cmd.ErrOrStderr())
			if errors.Is(err, context.Canceled) && r.Records > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s (%s) were moved; the store is whole\n", count(r.Records, "record"), size(r.Bytes))
			}
			if err != nil {
				return errWork{err}
			}
			if c.json {
				return printJSON(cmd.OutOrStdout(), compactJSON{lost != nil, r.Segments, r.Records, r.Bytes, r.Before, r.After})
			}
			out := cmd.OutOrStdout()
			if r.Segments == 0 && r.Before == r.After {
				fmt.Fprintf(out, "%s on disk: nothing to gain\n", size(r.After))
				return nil
			}
			fmt.Fprintf(out, "%s on disk before, %s after\n", size(r.Before), size(r.After))
			if r.Segments == 0 {
				fmt.Fprintln(out, "no segment was worth rewriting")
			} else {
				fmt.Fprintf(out, "%s rewritten, %s (%s) moved\n", count(r.Segments, "segment"), count(r.Records, "record"), size(r.Bytes))
			}
			return nil
		},
	}
	cmd.Flags().Float64Var(&share, "live-share", 0.5, "rewrite segments with a smaller `share` of live bytes")
	return cmd
}
