package main

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// shortReuses are listed one by one, the newest.
const shortReuses = 8

// printRequests says what became of requests: in all, by reason, and of those that were helped least, one by one.
func printRequests(out io.Writer, s llamaserver.Status) {
	counts := figures.Front{Requests: map[figures.Kind]int64{}}
	for _, c := range s.Requests {
		var o figures.Outcome
		o.UnmarshalText([]byte(c.Outcome))
		counts.Requests[figures.Kind{Outcome: o, Reason: c.Reason}] += c.N
	}
	if counts.Total() > 0 {
		fmt.Fprintf(out, "requests %s since this start: %s\n", figures.Comma(counts.Total()), counts.Ended())
		t := table.NewWriter()
		t.SetOutputMirror(out)
		t.SetStyle(table.StyleLight)
		t.AppendHeader(table.Row{"requests", "", "why no more was reused"})
		for _, c := range s.Requests {
			t.AppendRow(table.Row{figures.Comma(c.N), c.Outcome, figures.Words(c.Reason)})
		}
		t.Render()
	}
	if s.Asked > 0 {
		fmt.Fprintf(out, "tokens   %s of %s reused (%s): %s from the store, %s still in the server; %s computed\n", figures.Comma(s.Reused), figures.Comma(s.Asked),
			figures.Share(s.Reused, s.Asked), figures.Comma(s.FromStore), figures.Comma(s.Reused-s.FromStore), figures.Comma(s.Computed))
	}
	if s.Unknown > 0 {
		fmt.Fprintf(out, "         of %s more, in requests that were cancelled or came to nothing, it is not known\n", figures.Comma(s.Unknown))
	}
	if s.Unused > 0 {
		fmt.Fprintf(out, "warning  %s tokens were restored and computed again\n", figures.Comma(s.Unused))
	}
	switch {
	case !s.EverSince.IsZero() && s.EverSince.Before(s.Since):
		fmt.Fprintf(out, "saved    %s of computing since %s, %s of it since this start\n", long(s.SavedEver), s.EverSince.Local().Format("2 Jan 2006"), long(s.Saved))
	case s.Asked > 0:
		fmt.Fprintf(out, "saved    %s of computing since this start\n", long(s.Saved))
	}
	for _, r := range s.Rates {
		fmt.Fprintf(out, "speed    %s: %s tokens of a prompt are computed in a second\n", r.Model, figures.Comma(int64(r.PerSecond+0.5)))
	}
	printShort(out, s.Recent)
}

// printShort lists the last requests that were helped little, each with its cause.
func printShort(out io.Writer, recent []figures.Request) {
	n := 0
	for _, q := range recent {
		if !q.Short() || n == shortReuses {
			continue
		}
		if n++; n == 1 {
			fmt.Fprintf(out, "little reused, of the last %s requests:\n", figures.Comma(len(recent)))
		}
		of := "of a prompt whose length is not known"
		switch {
		case q.Known():
			of = figures.Comma(q.Reused) + " of " + figures.Comma(q.Asked) + " tokens reused"
		case q.Asked > 0:
			of = "of " + figures.Comma(q.Asked) + " tokens it is not known how many were reused"
		}
		if q.FirstByte > 0 {
			of += ", first byte after " + long(q.FirstByte)
		}
		fmt.Fprintf(out, "  %s  %s  %s: %s\n", q.Ended.Local().Format("15:04:05"), q.Asks(), q.Outcome, of)
		fmt.Fprintf(out, "            %s\n", q.Why())
		if q.Parted != nil {
			fmt.Fprintf(out, "            %s\n", q.Parted.Says(q.Asked))
			if advice := q.Parted.Advise(); advice != "" {
				fmt.Fprintf(out, "            %s\n", advice)
			}
		}
	}
}

// long is a time as people read it.
func long(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days %d h", int(d.Hours())/24, int(d.Hours())%24)
}
