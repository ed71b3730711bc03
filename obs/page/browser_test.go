package page_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/obs/page"
)

// browser is a tab of a real Chromium, and all that went wrong in it.
type browser struct {
	ctx      context.Context
	mu       sync.Mutex
	wrong    []string // errors of scripts, and whatever came to the console
	requests []string // addresses
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("SKIPPED: there is no Chromium here")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true), chromedp.WSURLReadTimeout(2*time.Minute))
	alloc, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	tab, stop := chromedp.NewContext(alloc)
	t.Cleanup(stop)
	b := &browser{ctx: tab}
	if err := chromedp.Listen(tab, b.hear); err != nil {
		t.Fatal(err)
	}
	for _, enable := range []cdp.Command[cdp.Empty, cdp.Empty]{runtime.Enable, log.Enable} {
		if _, err := chromedp.Call(tab, enable, cdp.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := chromedp.Call(tab, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, w := range b.wrong {
			t.Error("in the browser: ", w)
		}
	})
	return b
}

func (b *browser) hear(e any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := e.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
		b.wrong = append(b.wrong, "exception: "+text)
	case *runtime.EventConsoleAPICalled:
		for _, x := range e.Args {
			b.wrong = append(b.wrong, fmt.Sprintf("console.%s: %s%s", e.Type, x.Value, x.Description))
		}
	case *log.EventEntryAdded:
		b.wrong = append(b.wrong, fmt.Sprint("log: ", e.Entry.Text, " ", e.Entry.URL))
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	}
}

// seen are the addresses that the tab has asked for.
func (b *browser) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests)
}

func (b *browser) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		t.Fatalf("%v; %q", err, b.wrong)
	}
}

// until waits until a condition in the page holds.
func (b *browser) until(t *testing.T, js string) {
	t.Helper()
	b.do(t, chromedp.Poll[chromedp.Void](js, chromedp.WithPollingTimeout(2*time.Minute)))
}

// eval is the value of an expression in the page.
func eval[T any](t *testing.T, b *browser, js string) T {
	t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](js))
	if err != nil {
		t.Fatalf("%s: %v", js, err)
	}
	return out
}

// text is what a person reads in an element.
func (b *browser) text(t *testing.T, selector string) string {
	t.Helper()
	return eval[string](t, b, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// look sets width, height and colours.
func (b *browser) look(t *testing.T, width, height int64, dark bool) {
	t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	var phone []chromedp.EmulateViewportOption
	if width < 600 {
		phone = append(phone, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	b.do(t, chromedp.EmulateViewport(width, height, phone...))
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media); err != nil {
		t.Fatal(err)
	}
}

// shot takes a picture of the whole page, and keeps it where DORMOUSE_PICTURES says.
func (b *browser) shot(t *testing.T, name string) {
	t.Helper()
	b.do(t, chromedp.Sleep(200*time.Millisecond))
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if len(png) < 5000 {
		t.Errorf("%s: a picture of %d bytes: nothing is drawn", name, len(png))
	}
	if dir := os.Getenv("DORMOUSE_PICTURES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const drawn = "document.querySelectorAll('#tree .box').length > 3 && document.querySelectorAll('.tile').length > 2"

func TestPageInBrowser(t *testing.T) {
	b := newBrowser(t)
	s, rec := open(t, t.TempDir()), &figures.Recorder{}
	fill(t, s, rec)
	p := page.New(page.Options{
		Title: "llama-server on 127.0.0.1:8080", Store: func() *db.Store { return s }, Every: 50 * time.Millisecond,
		Front: func() figures.Front {
			f := rec.Read()
			f.Slots, f.Busy, f.Server, f.Restarts = 4, 1, "running", 1
			return f
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/dormouse/", http.StripPrefix("/dormouse", p))
	server := httptest.NewServer(mux)
	defer server.Close()
	defer p.Close()

	b.look(t, 1160, 900, false)
	b.do(t, chromedp.Navigate(server.URL+"/dormouse/"))
	b.until(t, drawn)
	b.shot(t, "page")
	b.look(t, 1160, 900, true)
	b.shot(t, "page-dark")
	b.look(t, 390, 844, false)
	b.shot(t, "page-phone")
	b.look(t, 390, 844, true)
	b.shot(t, "page-phone-dark")
}
