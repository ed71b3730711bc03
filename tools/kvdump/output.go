package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dormousekv/dormouse/db"
)

// openReadOnly opens the store in dir without changing a byte of it.
func openReadOnly(cmd *cobra.Command, c *common, dir string, progress func(db.Progress)) (*db.Store, error) {
	return db.Open(cmd.Context(), dir, db.Options{
		ReadOnly: true, AllowSharedDir: c.sharedDir, Progress: progress, Logger: slog.New(slog.DiscardHandler),
	})
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// newTable returns a table in this command's one style.
func newTable(w io.Writer, title string, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options = table.Options{SeparateHeader: true}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	t.SetStyle(style)
	if title != "" {
		fmt.Fprintf(w, "\n%s\n", title)
	}
	if len(header) > 0 {
		t.AppendHeader(header)
	}
	return t
}

// size prints bytes the way people read them.
func size(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 10<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 10<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

func percent(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}

// bar shows progress on a terminal, and nothing anywhere else.
func bar(w io.Writer) (report func(db.Progress), done func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	var b *progressbar.ProgressBar
	what := ""
	return func(p db.Progress) {
			if b == nil || what != p.What {
				what = p.What
				b = progressbar.NewOptions64(p.Total, progressbar.OptionSetWriter(f), progressbar.OptionSetDescription(what),
					progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond),
					progressbar.OptionClearOnFinish())
			}
			b.ChangeMax64(p.Total)
			b.Set64(p.Done)
		}, func() {
			if b != nil {
				b.Finish()
			}
		}
}
