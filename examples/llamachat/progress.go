//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// step is how far a child process is.
type step struct {
	What        string
	Done, Total int // tokens; Total 0: they are not counted
}

// progress shows on w what is being done, how much of it and how fast: on a terminal as a bar, else as a line every some seconds.
type progress struct {
	w        io.Writer
	terminal bool
	every    time.Duration // between two lines
	what     string
	from     int // tokens when it began
	began    time.Time
	last     time.Time
	bar      *progressbar.ProgressBar
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd())), every: 5 * time.Second}
}

func (p *progress) show(s step) {
	now := time.Now()
	if s.What != p.what {
		p.end()
		p.what, p.from, p.began, p.last = s.What, s.Done, now, now
		switch {
		case s.Total == 0 || !p.terminal:
			fmt.Fprintf(p.w, "%s …\n", s.What)
		default:
			p.bar = progressbar.NewOptions(s.Total, progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription(s.What), progressbar.OptionSetWidth(24),
				progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("tokens"), progressbar.OptionClearOnFinish())
		}
	}
	if p.bar != nil {
		p.bar.Set(s.Done)
		return
	}
	if took := now.Sub(p.began); s.Done > p.from && took > 0 && (now.Sub(p.last) >= p.every || s.Done == s.Total) {
		p.last = now
		fmt.Fprintf(p.w, "%s: %d of %d tokens, %.0f a second\n", s.What, s.Done, s.Total, float64(s.Done-p.from)/took.Seconds())
	}
}

// end takes the bar off the screen.
func (p *progress) end() {
	if p.bar != nil {
		p.bar.Clear()
		p.bar = nil
	}
	p.what = ""
}
