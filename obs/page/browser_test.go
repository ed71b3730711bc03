package page_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/dustin/go-humanize"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/obs/page"
)

// The pictures in docs are of the states that the tests take, and small enough for a clone.
func TestPicturesInDocs(t *testing.T) {
	for _, name := range []string{
		"page", "page-dark", "page-phone", "page-phone-dark", "page-closer", "page-locked", "page-empty", "page-embedded", "report", "report-phone-dark",
	} {
		b, err := os.ReadFile("../../docs/pictures/" + name + ".png")
		if err != nil || len(b) > 150_000 {
			t.Errorf("docs/pictures/%s.png: %d bytes, %v; DORMOUSE_PICTURES says where the tests put new ones", name, len(b), err)
		}
	}
}

const drawn = "document.querySelectorAll('#tree .box').length > 3 && document.querySelectorAll('.tile').length > 2"

// tile is what stands below a tile's value.
func tile(name string) string { return fmt.Sprintf(".tile[data-tile=%q] .under", name) }

// sane are laws of every state of the page: nothing is wider than the screen, boxes lie in their parents' width, a name is text.
func sane(t *testing.T, b *browser, models int) {
	t.Helper()
	if over := eval[int](t, b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
		t.Errorf("the page is %d pixels wider than the screen", over)
	}
	if n := eval[int](t, b, "[...document.querySelectorAll('#models tbody tr')].length"); n != models {
		t.Errorf("%d models are listed, expected %d", n, models)
	}
	if n := eval[int](t, b, "document.body.querySelectorAll('script:not([type=\"application/json\"])').length"); n > 1 {
		t.Errorf("%d scripts in the body: a name became one", n)
	}
	if n := eval[int](t, b, apart); n > 0 {
		t.Errorf("below %d boxes are several too narrow to be told from each other", n)
	}
	wide := eval[float64](t, b, "[...document.querySelectorAll('#tree .model rect')].reduce((n, r) => n + Number(r.getAttribute('width')) + 1, 0) - Number(document.querySelector('#tree').getAttribute('width'))")
	if wide < -3 || wide > 3 {
		t.Errorf("the models' boxes are %g pixels wider than the whole", wide)
	}
}

// apart is a law of the tree: of what stands beside one another below one box, at most one is too narrow to be told from the next.
const apart = `(() => {
	const wide = Object.fromEntries([...document.querySelectorAll("#tree .box")].map((g) => [g.dataset.id, Number(g.querySelector("rect").getAttribute("width"))]));
	const wrong = [];
	const walk = (n) => {
		const narrow = (n.drawn || []).filter((k) => wide[k.id] !== undefined && wide[k.id] < 12);
		if (narrow.length > 1) wrong.push(n.id);
		(n.drawn || []).forEach(walk);
	};
	walk(forest);
	return wrong.length;
})()`

// numbers compares what is written with what the store and the recorder say.
func numbers(t *testing.T, b *browser, s *db.Store, rec *figures.Recorder) {
	t.Helper()
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	f := rec.Read()
	hits, looked := f.Count(figures.Hit), f.Count(figures.Hit)+f.Count(figures.Miss)
	if st.Hits != hits || st.Matches != looked || st.TokensAsked != f.Asked || st.TokensReused != f.Reused {
		t.Fatalf("the recorder has %+v, the store %+v", f, st)
	}
	for selector, want := range map[string]string{
		tile("Requests"):      fmt.Sprintf("%d from the store, %d not found, %d passed through", st.Hits, st.Matches-st.Hits, f.Count(figures.Pass)),
		tile("Tokens reused"): humanize.Comma(st.TokensReused) + " of " + humanize.Comma(st.TokensAsked) + ", all from the store",
		tile("Made room"):     "blocks removed; " + humanize.Comma(st.Blocks) + " are stored",
	} {
		if got := b.text(t, selector); got != want {
			t.Errorf("%s says %q, expected %q", selector, got, want)
		}
	}
	type sum struct{ Bytes, Blocks, Records, Hits float64 }
	got := eval[sum](t, b, "({Bytes: tree.bytes, Blocks: tree.blocks, Records: tree.records, Hits: figures.store.hits})")
	if want := (sum{float64(st.LiveBytes), float64(st.Blocks), float64(st.StoredRecords), float64(st.Hits)}); got != want {
		t.Errorf("the page has %+v, the store %+v", got, want)
	}
	blocks := eval[int64](t, b, "[...document.querySelectorAll('#models tbody tr')].reduce((n, r) => n + Number(r.cells[3].innerText.replace(',', '')), 0)")
	if blocks != st.Blocks {
		t.Errorf("the models' blocks are %d in all, the store has %d", blocks, st.Blocks)
	}
	if rows := eval[int](t, b, "document.querySelectorAll('#recent tbody tr').length"); rows != 12 {
		t.Errorf("%d requests are shown at first", rows)
	}
}

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
	sane(t, b, 2)
	numbers(t, b, s, rec)
	if got := b.text(t, "#models tbody tr:last-child .name"); got != hostile {
		t.Errorf("the model is called %q, expected %q", got, hostile)
	}
	if state := b.text(t, "#state-text"); state != "live" {
		t.Errorf("the page says that it is %q", state)
	}
	for _, secret := range secrets {
		if body := eval[string](t, b, "document.documentElement.outerHTML"); strings.Contains(body, secret) {
			t.Errorf("the page shows %q", secret)
		}
	}
	b.shot(t, "numbers")

	// Looking closer at the system prompt, and back.
	b.do(t, chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll("#tree .run")].find((g) => g.textContent.includes("512 tokens")).dispatchEvent(new Event("click"))`))
	if pick := b.text(t, "#pick"); !strings.Contains(pick, "Tokens 0 to 512") || !strings.Contains(pick, "shared") {
		t.Errorf("of the system prompt the page says %q", pick)
	}
	if n := eval[int](t, b, "document.querySelectorAll('#tree .above').length"); n != 2 {
		t.Errorf("%d boxes above what is looked at, expected the whole and the model", n)
	}
	b.do(t, chromedp.Focus("#tree"), chromedp.KeyEvent(kb.ArrowDown))
	if pick := b.text(t, "#pick"); !strings.Contains(pick, "Tokens 512 to") || !strings.Contains(pick, "private: scope ") {
		t.Errorf("of a conversation the page says %q", pick)
	}
	b.do(t, chromedp.KeyEvent(kb.ArrowUp), chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(kb.Escape))
	if n := eval[int](t, b, "document.querySelectorAll('#tree .above').length"); n != 0 {
		t.Errorf("after stepping back %d boxes are above", n)
	}

	// All requests, and one that comes while we look.
	b.do(t, chromedp.Click("#all"))
	if rows := eval[int](t, b, "document.querySelectorAll('#recent tbody tr').length"); rows != 65 {
		t.Errorf("%d of 65 requests are shown", rows)
	}
	b.do(t, chromedp.Click("#all"))
	rec.Add(figures.Request{Model: "newest", Outcome: figures.Pass, Reason: "media", Client: "codex", Endpoint: "/v1/responses"})
	b.until(t, "document.querySelector('#recent tbody .who').innerText.replace(/\\s+/g, ' ') === 'codex /v1/responses · newest'")
	numbers(t, b, s, rec)

	light := eval[string](t, b, "getComputedStyle(document.body).backgroundColor")
	b.look(t, 1160, 900, true)
	if dark := eval[string](t, b, "getComputedStyle(document.body).backgroundColor"); dark == light {
		t.Errorf("in the dark the page is %s, too", dark)
	}
	for _, address := range b.seen() {
		if !strings.HasPrefix(address, server.URL+"/dormouse/") {
			t.Errorf("the page asked for %s", address)
		}
	}
}

// A store that is some days old: all ages have a colour, and there is more than one picture of it in docs/page.
func TestOldStoreInBrowser(t *testing.T) {
	b := newBrowser(t)
	dir, rec := t.TempDir(), &figures.Recorder{}
	live(t, dir, rec)
	s := open(t, dir)
	talk(t, s, rec)
	p := page.New(page.Options{
		Title: "llama-server on 127.0.0.1:8080", Store: func() *db.Store { return s }, Every: 50 * time.Millisecond,
		Front: func() figures.Front {
			f := rec.Read()
			f.Slots, f.Busy, f.Server, f.Restarts = 4, 1, "running", 1
			return f
		},
	})
	server := httptest.NewServer(p)
	defer server.Close()
	defer p.Close()
	b.look(t, 1160, 900, false)
	b.do(t, chromedp.Navigate(server.URL))
	b.until(t, drawn)
	sane(t, b, 2)
	for _, age := range []string{"u0", "u1", "u2", "u3", "u4"} {
		if n := eval[int](t, b, "document.querySelectorAll('#tree .run."+age+"').length"); n == 0 {
			t.Errorf("nothing is of the age %s", age)
		}
	}
	b.shot(t, "page")
	b.look(t, 1160, 900, true)
	b.shot(t, "page-dark")
	for _, dark := range []bool{false, true} {
		b.look(t, 390, 844, dark)
		b.until(t, "document.querySelector('#tree').getAttribute('width') < 390")
		sane(t, b, 2)
		b.shot(t, map[bool]string{false: "page-phone", true: "page-phone-dark"}[dark])
	}
	b.look(t, 1160, 900, false)
	b.until(t, "document.querySelector('#tree').getAttribute('width') > 390")
	b.do(t, chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll("#tree .run")][0].dispatchEvent(new Event("click"))`))
	closer, err := chromedp.Run(b.ctx, chromedp.Screenshot("#stored"))
	if err != nil {
		t.Fatal(err)
	}
	b.keep(t, "page-closer", closer)
	p.Close()
	b.until(t, "document.querySelector('#state-text').innerText === 'not connected'")

	var out bytes.Buffer
	if _, err := page.WriteReport(t.Context(), &out, s, "/home/anna/.local/share/dormouse"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	b.look(t, 1160, 700, false)
	b.do(t, chromedp.Navigate("file://"+file))
	b.until(t, drawn)
	b.forgive("503") // the page may have tried again meanwhile
	sane(t, b, 2)
	b.shot(t, "report")
	b.look(t, 390, 844, true)
	b.until(t, "document.querySelector('#tree').getAttribute('width') < 390")
	b.shot(t, "report-phone-dark")
}

// Every state in which there is little to show: no store, an empty one, one that failed, no front.
func TestStatesInBrowser(t *testing.T) {
	b := newBrowser(t)
	s := open(t, t.TempDir())
	var store atomic.Pointer[db.Store]
	var front atomic.Pointer[figures.Front]
	front.Store(&figures.Front{Slots: 2, Server: "starting", Store: "Another dormouse (pid 4711) has the store open: requests pass through until it is free."})
	server := func(f func() figures.Front) *httptest.Server {
		p := page.New(page.Options{Title: "llama-server on 127.0.0.1:8080", Store: store.Load, Front: f, Every: 20 * time.Millisecond})
		x := httptest.NewServer(p)
		t.Cleanup(x.Close)
		t.Cleanup(p.Close)
		return x
	}
	b.look(t, 900, 600, false)
	b.do(t, chromedp.Navigate(server(func() figures.Front { return *front.Load() }).URL))
	b.until(t, "document.querySelectorAll('.note.warn').length === 1 && document.querySelectorAll('.tile').length === 4")
	b.shot(t, "page-locked")
	front.Store(&figures.Front{Slots: 2, Server: "running"})
	store.Store(s)
	b.until(t, "!document.querySelector('.note') && document.querySelector('#pick').innerText === 'Nothing is stored yet.'")
	b.shot(t, "page-empty")
	front.Store(&figures.Front{Slots: 2, Server: "running", Notes: []figures.Note{{Level: figures.Bad, Text: "<b>It is bad.</b>"}}})
	b.until(t, "document.querySelector('.note.bad')")
	if got := b.text(t, ".note.bad"); got != "<b>It is bad.</b>" {
		t.Errorf("the note says %q", got)
	}

	rec := &figures.Recorder{}
	fill(t, s, rec)
	b.do(t, chromedp.Navigate(server(nil).URL))
	b.until(t, drawn)
	sane(t, b, 2)
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := b.text(t, tile("Prompts found")), fmt.Sprintf("%d of %d prompts", st.Hits, st.Matches); got != want {
		t.Errorf("without a front the page says %q, expected %q", got, want)
	}
	b.shot(t, "page-embedded")
	if _, err := s.Shrink(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	b.until(t, fmt.Sprintf("/^blocks removed; half of them had not been used for up to [0-9]+ min; 0 are stored$/.test(document.querySelector(%q).innerText)", tile("Made room")))

	// Colours are ages.
	classes := eval[[]string](t, b, `(() => {
		const of = (minutes) => ({ id: "m" + minutes, first: 0, tokens: 64, blocks: 1, own: 10, bytes: 10, hits: 0, used: minutes === null ? 0 : Date.now() - 60000 * minutes });
		const kids = [1, 30, 600, 6000, 60000, null].map(of);
		showTree({ at: Date.now(), bytes: 60, blocks: 6, records: 6, damaged: 0, scopes: 0, shared: 60, used: 0, models: [{ id: "a", name: "ages", latest: true, blocks: 6, records: 6, bytes: 60, tokens: 384, hits: 0, used: 0, kids }] });
		return [...document.querySelectorAll("#tree .run")].map((g) => getComputedStyle(g.querySelector("rect")).fill);
	})()`)
	if slices.Sort(classes); len(slices.Compact(classes)) != 6 {
		t.Errorf("six ages have the colours %v", classes)
	}
}

func TestReportInBrowser(t *testing.T) {
	b := newBrowser(t)
	dir, rec := t.TempDir(), &figures.Recorder{}
	s := open(t, dir)
	fill(t, s, rec)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := db.Open(t.Context(), dir, db.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	file := filepath.Join(t.TempDir(), "report.html")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := page.WriteReport(t.Context(), f, r, "/home/anna/.local/share/dormouse")
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	b.look(t, 1160, 900, false)
	b.do(t, chromedp.Navigate("file://"+file))
	b.until(t, drawn)
	sane(t, b, 2)
	st, err := r.Stats()
	if err != nil {
		t.Fatal(err)
	}
	type sum struct{ Bytes, Blocks, Records float64 }
	got := eval[sum](t, b, "({Bytes: tree.bytes, Blocks: tree.blocks, Records: tree.records})")
	if want := (sum{float64(st.LiveBytes), float64(st.Blocks), float64(st.StoredRecords)}); got != want || tree.Blocks != st.Blocks {
		t.Errorf("the report has %+v, the store %+v", got, want)
	}
	if got := b.text(t, ".tile[data-tile=Blocks] .value"); got != fmt.Sprint(st.Blocks) {
		t.Errorf("the report says %q blocks, the store %d", got, st.Blocks)
	}
	if got := b.text(t, "#models tbody tr:last-child .name"); got != hostile {
		t.Errorf("the model is called %q, expected %q", got, hostile)
	}
	b.shot(t, "numbers-report")
	if seen := b.seen(); len(seen) != 2 || seen[0] != "file://"+file || !strings.HasPrefix(seen[1], "data:") {
		t.Errorf("the report asked for %.100q", seen)
	}
}
