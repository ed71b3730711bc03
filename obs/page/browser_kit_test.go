package page_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
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

// forgive forgets what went wrong that has this text: it was to be.
func (b *browser) forgive(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = slices.DeleteFunc(b.wrong, func(w string) bool { return strings.Contains(w, text) })
}

// seen are the addresses that the tab has asked for.
func (b *browser) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests)
}

func (b *browser) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, 2*time.Minute) // what never comes is an error, not a test that hangs
	defer stop()
	if err := chromedp.Do(ctx, actions...); err != nil {
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
	shot, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	b.keep(t, name, shot)
}

func (b *browser) keep(t *testing.T, name string, shot []byte) {
	t.Helper()
	if len(shot) < 5000 {
		t.Errorf("%s: a picture of %d bytes: nothing is drawn", name, len(shot))
	}
	if dir := os.Getenv("DORMOUSE_PICTURES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), small(t, shot), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// small is the picture in 256 colours: those that most of it has.
func small(t *testing.T, from []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(from))
	if err != nil {
		t.Fatal(err)
	}
	many := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(full.At(x, y)).(color.RGBA) }
	r := full.Bounds()
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			many[at(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(many), func(a, b color.RGBA) int { return cmp.Or(cmp.Compare(many[b], many[a]), cmp.Compare(a.R, b.R)) })
	var few color.Palette
	for _, c := range colors[:min(len(colors), 200)] {
		few = append(few, c)
	}
	for rest := colors[len(few):]; len(few) < 256 && len(rest) > 0; { // and what is least like those: a green dot
		far, at := -1, color.RGBA{}
		for _, c := range rest {
			n := few[few.Index(c)].(color.RGBA)
			d := func(a, b uint8) int { return (int(a) - int(b)) * (int(a) - int(b)) }
			if x := d(c.R, n.R) + d(c.G, n.G) + d(c.B, n.B); x > far {
				far, at = x, c
			}
		}
		few = append(few, at)
	}
	nearest := map[color.RGBA]uint8{}
	for c := range many {
		nearest[c] = uint8(few.Index(c))
	}
	out := image.NewPaletted(r, few)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			out.SetColorIndex(x, y, nearest[at(x, y)])
		}
	}
	var to bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&to, out); err != nil {
		t.Fatal(err)
	}
	return to.Bytes()
}
