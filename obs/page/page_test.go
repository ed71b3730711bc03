package page_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/obs/page"
)

// secrets are what fill gives a store that nobody may see: token ids, names of scopes, a reason that is a prompt's text.
var secrets = []string{"1000100000", "1000200001", "1010000001", "user1", "user4", "secret"}

func TestDrawnIsWhatIsStored(t *testing.T) {
	s, rec := open(t, t.TempDir()), &figures.Recorder{}
	fill(t, s, rec)
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	tree, err := page.Draw(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if tree.Bytes != st.LiveBytes || tree.Blocks != st.Blocks || tree.Records != st.StoredRecords || tree.Scopes != 5 {
		t.Errorf("drawn are %d bytes, %d blocks, %d records, %d scopes; stored %d, %d, %d, 5", tree.Bytes, tree.Blocks, tree.Records, tree.Scopes,
			st.LiveBytes, st.Blocks, st.StoredRecords)
	}
	var system *page.Node
	for _, m := range tree.Models {
		for _, k := range m.Kids {
			if k.First == 0 && len(k.Kids) > 1 {
				system = k
			}
		}
	}
	if system == nil || system.Tokens != 512 || system.Scope != "" || len(system.Kids) != 12 {
		t.Fatalf("the system prompt is drawn as %+v", system)
	}
	for _, k := range system.Kids {
		if k.Scope == "" || k.First != 512 {
			t.Errorf("behind the system prompt: %+v", k)
		}
	}
}

func get(t *testing.T, h http.Handler, method, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:5000", "localhost:8080"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestFilesOfThePage(t *testing.T) {
	p := page.New(page.Options{})
	defer p.Close()
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/page.css": "text/css; charset=utf-8", "/page.js": "text/javascript; charset=utf-8", "/icon.svg": "image/svg+xml",
	} {
		w := get(t, p, "GET", path, nil)
		if w.Code != 200 || w.Header().Get("Content-Type") != kind || w.Body.Len() < 100 {
			t.Errorf("%s: %d, %q, %d bytes", path, w.Code, w.Header().Get("Content-Type"), w.Body.Len())
		}
		for name, part := range map[string]string{
			"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			if got := w.Header().Get(name); !strings.Contains(got, part) {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		if policy := w.Header().Get("Content-Security-Policy"); strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%s: %q", path, policy)
		}
		for _, outside := range []string{"http://", "https://"} {
			body := strings.ReplaceAll(w.Body.String(), "http://www.w3.org/2000/svg", "")
			if strings.Contains(body, outside) {
				t.Errorf("%s asks for something elsewhere", path)
			}
		}
	}
	for path, want := range map[string]int{"/nothing": 404, "/assets/page.js": 404, "/../page.go": 404, "/doc.go": 404} {
		if w := get(t, p, "GET", path, nil); w.Code != want && w.Code != 301 && w.Code != 307 {
			t.Errorf("%s: %d, expected %d", path, w.Code, want)
		}
	}
	if w := get(t, p, "POST", "/", nil); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

// The page is for its own machine, unless it was said otherwise.
func TestWhoMayLook(t *testing.T) {
	local, anywhere := page.New(page.Options{}), page.New(page.Options{Anywhere: true})
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"this machine":            {nil, 200},
		"IPv6":                    {func(r *http.Request) { r.RemoteAddr, r.Host = "[::1]:4000", "[::1]:8080" }, 200},
		"mapped":                  {func(r *http.Request) { r.RemoteAddr, r.Host = "[::ffff:127.0.0.1]:4000", "127.0.0.1" }, 200},
		"another machine":         {func(r *http.Request) { r.RemoteAddr = "192.168.1.7:4000" }, 403},
		"a name that leads here":  {func(r *http.Request) { r.Host = "evil.example:8080" }, 403},
		"a name that begins so":   {func(r *http.Request) { r.Host = "127.0.0.1.evil.example" }, 403},
		"an address of the net":   {func(r *http.Request) { r.Host = "192.168.1.7:8080" }, 403},
		"forwarded by a proxy":    {func(r *http.Request) { r.Header.Set("X-Forwarded-For", "10.1.1.1") }, 403},
		"forwarded, newer header": {func(r *http.Request) { r.Header.Set("Forwarded", "for=10.1.1.1") }, 403},
		"no host":                 {func(r *http.Request) { r.Host = "" }, 403},
		"no address":              {func(r *http.Request) { r.RemoteAddr = "@" }, 403},
	} {
		for _, path := range []string{"/", "/page.js"} {
			if w := get(t, local, "GET", path, c.change); w.Code != c.want {
				t.Errorf("%s, %s: %d, expected %d", name, path, w.Code, c.want)
			}
		}
		if w := get(t, anywhere, "GET", "/", c.change); w.Code != 200 {
			t.Errorf("%s, allowed: %d", name, w.Code)
		}
	}
	if w := get(t, local, "GET", "/events", func(r *http.Request) { r.RemoteAddr = "192.168.1.7:4000" }); w.Code != 403 {
		t.Errorf("events to another machine: %d", w.Code)
	}
}

// stream reads events until it has one of each name, or the stream ends.
func stream(t *testing.T, url string, names ...string) map[string]string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s, %q", res.Status, res.Header.Get("Content-Type"))
	}
	got, event := map[string]string{}, ""
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			event = name
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			got[event] = data
			all := true
			for _, n := range names {
				all = all && got[n] != ""
			}
			if all {
				return got
			}
		}
	}
	return got
}

func TestEvents(t *testing.T) {
	s, rec := open(t, t.TempDir()), &figures.Recorder{}
	fill(t, s, rec)
	var asked atomic.Int64
	p := page.New(page.Options{
		Title: "a server", Every: 5 * time.Millisecond, Store: func() *db.Store { asked.Add(1); return s }, Front: rec.Read,
	})
	server := httptest.NewServer(p)
	defer server.Close()
	defer p.Close()
	got := stream(t, server.URL+"/events", "figures", "tree")
	for _, secret := range secrets {
		if strings.Contains(got["figures"]+got["tree"], secret) {
			t.Errorf("the page is told %q", secret)
		}
	}
	var f struct {
		Title string
		Store struct{ Blocks, Matches, Hits, TokensAsked, TokensReused, LiveBytes, DiskBytes, Budget int64 }
		Front struct {
			Hits, Misses, Passed, Asked, Reused int64
			Recent                              []struct{ Why string }
		}
	}
	if err := json.Unmarshal([]byte(got["figures"]), &f); err != nil {
		t.Fatal(err)
	}
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	x := f.Store
	if x.Blocks != st.Blocks || x.Matches != st.Matches || x.Hits != st.Hits || x.TokensAsked != st.TokensAsked || x.TokensReused != st.TokensReused ||
		x.LiveBytes != st.LiveBytes || x.Budget != st.Budget || f.Title != "a server" {
		t.Errorf("the page is told %+v; the store says %+v", f, st)
	}
	front := rec.Read()
	if f.Front.Hits != front.Count(figures.Hit) || f.Front.Misses != front.Count(figures.Miss) || f.Front.Passed != 5 ||
		f.Front.Asked != front.Asked || f.Front.Reused != front.Reused || f.Front.Asked != st.TokensAsked || len(f.Front.Recent) != 65 {
		t.Errorf("the page is told %+v, the store says %+v", f.Front, st)
	}

	// When the last one has gone, nobody is asked any more.
	for before := int64(-1); before != asked.Load(); time.Sleep(200 * time.Millisecond) {
		before = asked.Load()
	}
}

// Of what a runtime observed the page shows the model's name.
func TestModelsOfObservations(t *testing.T) {
	s, rec := open(t, t.TempDir()), &figures.Recorder{}
	m := register(t, s, desc("a name", 1))
	rec.Observe(db.Observation{Model: m.Fingerprint(), Asked: 100, Prefilled: 100, Prefill: time.Second})
	rec.Observe(db.Observation{Model: kv.Fingerprint{1}, Asked: 100})
	p := page.New(page.Options{Store: func() *db.Store { return s }, Front: rec.Read})
	server := httptest.NewServer(p)
	defer server.Close()
	defer p.Close()
	var f struct {
		Front struct{ Recent, Rates []struct{ Model string } }
	}
	if err := json.Unmarshal([]byte(stream(t, server.URL+"/events", "figures")["figures"]), &f); err != nil {
		t.Fatal(err)
	}
	if r := f.Front.Recent; len(r) != 2 || r[1].Model != "a name" || r[0].Model != (kv.Fingerprint{1}).String() || f.Front.Rates[0].Model != "a name" {
		t.Errorf("%+v", f)
	}
}

// Very many models with very long names make no long page.
func TestManyModels(t *testing.T) {
	s := open(t, t.TempDir())
	for i := range 60 {
		m := register(t, s, desc(fmt.Sprint(i, strings.Repeat("é", 5000)), 1))
		if i%2 == 0 {
			turn(t, m, kv.Prompt{Tokens: run(1, 32)})
		}
	}
	var out bytes.Buffer
	tree, err := page.WriteReport(t.Context(), &out, s, "")
	if err != nil || len(tree.Models) != 60 || out.Len() > 100_000 || !strings.Contains(out.String(), "… 12 more models") {
		t.Errorf("%d models, a report of %d bytes, %v", len(tree.Models), out.Len(), err)
	}
}

// A store may be missing, come, be suspended, and go.
func TestStoreComesAndGoes(t *testing.T) {
	var now atomic.Pointer[db.Store]
	p := page.New(page.Options{Every: 2 * time.Millisecond, Store: now.Load, Front: func() figures.Front {
		return figures.Front{Store: "another dormouse has the store open"}
	}})
	server := httptest.NewServer(p)
	defer server.Close()
	defer p.Close()
	expect := func(what, part string) {
		t.Helper()
		for range 2000 {
			if got := stream(t, server.URL+"/events", "figures"); strings.Contains(got["figures"], part) {
				return
			}
		}
		t.Errorf("%s: the page is not told %s", what, part)
	}
	expect("no store", `"store":null`)
	expect("no store", "another dormouse has the store open")
	s := open(t, t.TempDir())
	now.Store(s)
	expect("a store", `"blocks":0`)
	if err := s.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("suspended", "The store is suspended.")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	expect("closed", "The store is closed.")
}

// Close ends streams; there are never more of them than a few.
func TestStreamsEnd(t *testing.T) {
	p := page.New(page.Options{})
	server := httptest.NewServer(p)
	defer server.Close()
	var open []*http.Response
	refused := 0
	for range 40 {
		res, err := http.Get(server.URL + "/events")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode == 503 {
			refused++
		} else {
			open = append(open, res)
		}
	}
	if len(open) != 32 || refused != 8 {
		t.Errorf("%d streams, %d were refused", len(open), refused)
	}
	p.Close()
	p.Close()
	for _, res := range open {
		if _, err := new(bytes.Buffer).ReadFrom(res.Body); err != nil {
			t.Error(err)
		}
	}
	if res, err := http.Get(server.URL + "/events"); err != nil || res.StatusCode != 503 {
		t.Errorf("a stream of a closed page: %v, %v", res, err)
	}
}

// A report tells no secret, and a name in it is text.
func TestReport(t *testing.T) {
	s, rec := open(t, t.TempDir()), &figures.Recorder{}
	fill(t, s, rec)
	m := register(t, s, desc("gemma-3-270m-it-Q8_0", 4))
	p := kv.Prompt{Tokens: run(1, 512)}
	if err := m.SetRef(t.Context(), "name-of-a-ref", p, db.RefOptions{Meta: []byte("meta-of-a-ref")}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := page.WriteReport(t.Context(), &out, s, "</script><b>"); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if !strings.HasPrefix(text, page.ReportMark) {
		t.Errorf("a report begins with %q", text[:60])
	}
	for _, secret := range append(secrets, "name-of-a-ref", "meta-of-a-ref", hostile, "</script><b>") {
		if strings.Contains(text, secret) {
			t.Errorf("the report has %q in it", secret)
		}
	}
	for _, other := range []string{`src="page`, `href="page`, "<!-- files"} {
		if strings.Contains(text, other) {
			t.Errorf("the report needs another file: %q", other)
		}
	}
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{fmt.Sprintf(`"liveBytes":%d,`, st.LiveBytes), fmt.Sprintf(`"bytes":%d,"blocks":%d,`, st.LiveBytes, st.Blocks)} {
		if !strings.Contains(text, part) {
			t.Errorf("the report lacks %s", part)
		}
	}
}
