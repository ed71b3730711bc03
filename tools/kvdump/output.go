package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

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

// grid is a table in this command's one style: no frame, a rule below the header.
type grid struct{ table.Writer }

// newGrid returns a table with that header. A column whose name begins with > is aligned to the right.
func newGrid(header ...string) *grid {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options = table.Options{SeparateHeader: true}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	t.SetStyle(style)
	var names table.Row
	var columns []table.ColumnConfig
	for i, h := range header {
		name, right := strings.CutPrefix(h, ">")
		names = append(names, name)
		if right {
			columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	t.SetColumnConfigs(columns)
	t.AppendHeader(names)
	return &grid{t}
}

func (g *grid) row(cells ...any) { g.AppendRow(cells) }

// print writes the table under a title, without the padding behind the last column.
func (g *grid) print(w io.Writer, title string) {
	fmt.Fprintf(w, "\n%s\n", title)
	for i, line := range strings.Split(g.Render(), "\n") {
		if i == 1 {
			line = strings.TrimSuffix(line, "──")
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// size prints bytes the way people read them.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// count prints a number of things, of which there may be one.
func count[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if what == "child" {
		return fmt.Sprintf("%d children", n)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func percent(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}

// short is what a table shows of an id; --json has all of it.
func short(id string) string {
	if len(id) == 32 {
		return id[:12]
	}
	return id
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// ago is a time in a table: how long before now it was, roughly.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return "-"
	case d < 2*time.Minute:
		return "just now"
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", d/time.Hour)
	}
	return fmt.Sprintf("%d d ago", d/(24*time.Hour))
}

// when is a time in a table, or that there is none.
func when(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Format("2006-01-02 15:04")
}
