package main

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/db"
)

func newCompact(c *common) *cobra.Command {
	var share float64
	cmd := &cobra.Command{
		Use:   "compact DIR",
		Short: "Give space back: move live records out of segments that are mostly dead, rewrite the index",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if share <= 0 || share > 1 {
				return fmt.Errorf("--live-share is %g: more than 0, at most 1", share)
			}
			// Open would make a store where there is none.
			if _, err := os.Stat(args[0] + "/FORMAT"); err != nil {
				return fmt.Errorf("%s: no store: %w", args[0], fs.ErrNotExist)
			}
			progress, done := bar(cmd.ErrOrStderr())
			// A budget that evicts nothing: compact throws no record away.
			s, err := db.Open(cmd.Context(), args[0], db.Options{
				Budget: 1 << 50, MinFree: -1, SegmentBytes: 64 << 20, AllowSharedDir: c.sharedDir, Progress: progress,
				Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			if err != nil {
				return errWork{err}
			}
			r, err := s.Compact(cmd.Context(), db.CompactOptions{LiveShare: share, Progress: progress})
			done()
			if cerr := s.Close(); err == nil {
				err = cerr
			}
			if err != nil {
				return errWork{err}
			}
			if c.json {
				return printJSON(cmd.OutOrStdout(), map[string]any{
					"segments_rewritten": r.Segments, "records_moved": r.Records, "bytes_moved": r.Bytes,
					"bytes_before": r.Before, "bytes_after": r.After,
				})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s before, %s after: %d segments rewritten, %d records (%s) moved\n",
				size(r.Before), size(r.After), r.Segments, r.Records, size(r.Bytes))
			return nil
		},
	}
	cmd.Flags().Float64Var(&share, "live-share", 0.5, "rewrite segments with a smaller share of live bytes")
	return cmd
}
