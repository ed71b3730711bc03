//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/dustin/go-humanize"

	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// tally is what status, metrics and page must agree on.
type tally struct {
	Hits, Slots, Misses, Passed, Cancelled, Asked, Reused, Computed, Unused, Unknown, Restarts, DiskBytes, Budget int64
}

func tallyOf(s llamaserver.Status) tally {
	t := tally{Asked: s.Asked, Reused: s.Reused, Computed: s.Computed, Unused: s.Unused, Unknown: s.Unknown, Restarts: s.Started - 1, DiskBytes: s.Bytes, Budget: s.Budget}
	for _, c := range s.Requests {
		switch c.Outcome {
		case "hit":
			t.Hits += c.N
		case "slot":
			t.Slots += c.N
		case "cancelled":
			t.Cancelled += c.N
		case "miss":
			t.Misses += c.N
		case "pass":
			t.Passed += c.N
		}
	}
	return t
}

// agree has something looked at between two looks at a status that says the same both times: the store's bytes change by themselves, rarely.
func (f *front) agree(ctx context.Context, look func() (tally, error)) error {
	for try := 0; ; try++ {
		before, err := f.status(ctx)
		if err != nil {
			return err
		}
		got, err := look()
		if err != nil {
			return err
		}
		after, err := f.status(ctx)
		if err != nil {
			return err
		}
		want := tallyOf(before)
		switch {
		case got == want:
			return nil
		case try < 10 && want != tallyOf(after):
			time.Sleep(200 * time.Millisecond)
		default:
			return fmt.Errorf("it says %+v, dormouse status %+v", got, want)
		}
	}
}

// checkMetrics compares /dormouse/metrics with the status.
func (f *front) checkMetrics(ctx context.Context) error {
	text := ""
	err := f.agree(ctx, func() (t tally, err error) {
		if text, err = get(ctx, join(f.url, "/dormouse/metrics")); err != nil {
			return t, err
		}
		m := scraped(text)
		return tally{
			Hits: m.sum("dormouse_front_requests_total", `outcome="hit"`), Misses: m.sum("dormouse_front_requests_total", `outcome="miss"`),
			Passed: m.sum("dormouse_front_requests_total", `outcome="pass"`), Asked: m.sum("dormouse_front_tokens_asked_total", ""),
			Reused: m.sum("dormouse_front_tokens_reused_total", ""), Computed: m.sum("dormouse_front_tokens_computed_total", ""),
			Slots: m.sum("dormouse_front_requests_total", `outcome="slot"`), Cancelled: m.sum("dormouse_front_requests_total", `outcome="cancelled"`),
			Unused: m.sum("dormouse_front_tokens_unused_total", ""), Unknown: m.sum("dormouse_front_tokens_unknown_total", ""), Restarts: m.sum("dormouse_front_server_restarts_total", ""),
			DiskBytes: m.sum("dormouse_store_disk_bytes", ""), Budget: m.sum("dormouse_store_budget_bytes", ""),
		}, nil
	})
	if err == nil && strings.Contains(text, secret) {
		err = errors.New("a word of a prompt stands in them")
	}
	if err != nil {
		return fmt.Errorf("/dormouse/metrics: %w", err)
	}
	return nil
}

// metrics are the values of a scrape, by name with labels.
type metrics map[string]float64

func scraped(text string) metrics {
	m := metrics{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil && at > 0 && line[0] != '#' {
			m[line[:at]] = v
		}
	}
	return m
}

// restoring is how long all lookups and restores took, by the metrics.
func (f *front) restoring(ctx context.Context) (time.Duration, error) {
	text, err := get(ctx, f.url+"/dormouse/metrics")
	m := scraped(text)
	return time.Duration((m["dormouse_front_lookup_seconds_total"] + m["dormouse_front_restore_seconds_total"]) * float64(time.Second)), err
}

// sum adds up a metric's series that have a label; -1: there is none of that name.
func (m metrics) sum(name, label string) int64 {
	sum, any := 0.0, false
	for series, v := range m {
		if n, labels, _ := strings.Cut(series, "{"); n == name {
			any = true
			if strings.Contains(labels, label) {
				sum += v
			}
		}
	}
	if !any {
		return -1
	}
	return int64(sum)
}

// checkPage opens the page in a real browser and compares what stands there with the status.
func (f *front) checkPage(ctx context.Context) error {
	tab, err := f.r.browse(ctx)
	if err != nil {
		return err
	}
	defer tab.close()
	if err := chromedp.Do(tab.ctx, chromedp.Navigate(join(f.url, "/dormouse/"))); err != nil {
		return fmt.Errorf("/dormouse/: %w", err)
	}
	drawn := "document.querySelectorAll('#tree .box').length > 2 && document.querySelectorAll('.tile').length > 4 && document.querySelector('#state-text').innerText === 'live'"
	if err := chromedp.Do(tab.ctx, chromedp.Poll[chromedp.Void](drawn, chromedp.WithPollingTimeout(time.Minute))); err != nil {
		return fmt.Errorf("/dormouse/ is not drawn: %w; %q", err, tab.wrong)
	}
	if err := f.agree(ctx, func() (t tally, err error) {
		time.Sleep(1200 * time.Millisecond) // figures come once a second
		return chromedp.Run(tab.ctx, chromedp.Evaluate[tally](`({Hits: figures.front.hits, Slots: figures.front.slotted, Misses: figures.front.misses, Passed: figures.front.passed, Cancelled: figures.front.cancelled,
			Asked: figures.front.asked, Reused: figures.front.reused, Computed: figures.front.computed, Unused: figures.front.unused, Unknown: figures.front.unknown,
			Restarts: figures.front.restarts, DiskBytes: figures.store.diskBytes, Budget: figures.store.budget})`))
	}); err != nil {
		return fmt.Errorf("/dormouse/: %w", err)
	}
	status, err := f.status(ctx)
	if err != nil {
		return err
	}
	t := tallyOf(status)
	var ended []string
	for _, x := range []struct {
		n   int64
		how string
	}{{t.Hits, "from the store"}, {t.Slots, "still in a slot"}, {t.Misses, "not found"}, {t.Passed, "passed through"}, {t.Cancelled, "cancelled"}} {
		if x.n > 0 {
			ended = append(ended, humanize.Comma(x.n)+" "+x.how)
		}
	}
	want := humanize.Comma(t.Hits+t.Slots+t.Misses+t.Passed+t.Cancelled) + ": " + strings.Join(ended, ", ")
	shown, err := chromedp.Run(tab.ctx, chromedp.Evaluate[string](`((t) => t.querySelector('.value').innerText + ': ' + t.querySelector('.under').innerText)(document.querySelector('.tile[data-tile="Requests"]'))`))
	if err == nil && shown != want {
		err = fmt.Errorf("the tile of requests says %q, expected %q", shown, want)
	}
	if err != nil {
		return fmt.Errorf("/dormouse/: %w", err)
	}
	if err := tab.sameRequests(status.Recent); err != nil {
		return fmt.Errorf("/dormouse/: %w", err)
	}
	html, err := chromedp.Run(tab.ctx, chromedp.Evaluate[string](`document.documentElement.outerHTML + JSON.stringify([figures, tree])`))
	if err == nil && strings.Contains(html, secret) {
		err = errors.New("a word of a prompt stands on it")
	}
	if err != nil {
		return fmt.Errorf("/dormouse/: %w", err)
	}
	return tab.fine(join(f.url, "/dormouse/"))
}

// sameRequests compares the requests that the page shows with those of the status: who asked, how many tokens were reused, and why no more, in words.
func (t *tab) sameRequests(recent []figures.Request) error {
	var want []string
	for _, q := range recent[:min(len(recent), 12)] {
		line := "– " + q.Why()
		if q.Known() {
			line = humanize.Comma(int64(q.Reused)) + " of " + humanize.Comma(int64(q.Asked)) + " " + q.Why()
		} else if q.Asked > 0 {
			line = "not known, of " + humanize.Comma(int64(q.Asked)) + " " + q.Why()
		}
		if q.Parted != nil {
			line += " " + q.Parted.Says(q.Asked) + " " + q.Parted.Advise()
		}
		want = append(want, strings.Join(strings.Fields(line), " "))
	}
	shown, err := chromedp.Run(t.ctx, chromedp.Evaluate[[]string](`[...document.querySelectorAll("#recent tbody tr")].map((r) => (r.querySelector(".reused").innerText + " " + r.querySelector(".reason").innerText).replace(/\s+/g, " ").trim())`))
	if err == nil && !slices.Equal(shown, want) {
		err = fmt.Errorf("the page shows the requests %q, dormouse status %q", shown, want)
	}
	return err
}

// tab is one of a real Chromium, and all that went wrong in it.
type tab struct {
	ctx   context.Context
	stops []func()

	mu       sync.Mutex
	wrong    []string
	requests []string
}

func (r *rig) browse(ctx context.Context) (*tab, error) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		return nil, errors.New("there is no Chromium here to look at the page with: apt-get install chromium")
	}
	dir, err := r.folder("chromium")
	if err != nil {
		return nil, err
	}
	t := &tab{}
	alloc, stop := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(dir),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(2*time.Minute))...)
	t.stops = append(t.stops, stop)
	t.ctx, stop = chromedp.NewContext(alloc)
	t.stops = append(t.stops, stop)
	err = chromedp.Listen(t.ctx, t.hear)
	for _, enable := range []cdp.Command[cdp.Empty, cdp.Empty]{runtime.Enable, log.Enable} {
		if err == nil {
			_, err = chromedp.Call(t.ctx, enable, cdp.Empty{})
		}
	}
	if err == nil {
		_, err = chromedp.Call(t.ctx, network.Enable, network.EnableParams{})
	}
	if err != nil {
		t.close()
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	return t, nil
}

func (t *tab) close() {
	for i := len(t.stops) - 1; i >= 0; i-- {
		t.stops[i]()
	}
}

func (t *tab) hear(e any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := e.(type) {
	case *runtime.EventExceptionThrown:
		t.wrong = append(t.wrong, "exception: "+e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		for _, x := range e.Args {
			t.wrong = append(t.wrong, fmt.Sprintf("console.%s: %s%s", e.Type, x.Value, x.Description))
		}
	case *log.EventEntryAdded:
		t.wrong = append(t.wrong, "log: "+e.Entry.Text+" "+e.Entry.URL)
	case *network.EventRequestWillBeSent:
		t.requests = append(t.requests, e.Request.URL)
	}
}

// fine reports errors of scripts, and requests to other addresses.
func (t *tab) fine(base string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.wrong) > 0 {
		return fmt.Errorf("in the browser: %q", t.wrong)
	}
	for _, address := range t.requests {
		if !strings.HasPrefix(address, base) {
			return fmt.Errorf("the page asked for %s", address)
		}
	}
	return nil
}
