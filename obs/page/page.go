package page

import (
	"embed"
	"mime"
	"net/http"
	"path"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/obs/figures"
)

//go:embed assets
var assets embed.FS

// scripts in the order in which they run.
var scripts = []string{"words.js", "tree.js", "charts.js", "page.js"}

// Options say what a page shows. Its functions are called while somebody looks, from any goroutine, at times by two at once.
type Options struct {
	// Title is what is looked at, in a few words.
	Title string
	// Store is the store, or nil while there is none. Nil: there never is one.
	Store func() *db.Store
	// Front has the figures of the front. Nil: there is no front.
	Front func() figures.Front
	// Askers are the programs that have asked for a block, by name, which is named by the beginning of its key. Nil, or empty: not known.
	Askers func(block string) string
	// Anywhere answers whoever asks. Otherwise only this machine is answered: see [Page.ServeHTTP].
	Anywhere bool
	// Every is the time between two updates. 0: a second.
	Every time.Duration
}

func (o *Options) store() *db.Store {
	if o.Store == nil {
		return nil
	}
	return o.Store()
}

// Page is an http.Handler. Close it before the server is shut down, which waits for streams otherwise.
type Page struct {
	o   Options
	mux *http.ServeMux
	hub hub
}

// New makes a page. Mount it with http.StripPrefix, at a path that ends in a slash:
//
//	mux.Handle("/dormouse/", http.StripPrefix("/dormouse", page.New(o)))
func New(o Options) *Page {
	if o.Every <= 0 {
		o.Every = time.Second
	}
	p := &Page{o: o, mux: http.NewServeMux()}
	p.hub.o, p.hub.silence, p.hub.patience = &p.o, 15*time.Second, 10*time.Second
	p.mux.HandleFunc("GET /{$}", asset("index.html"))
	for _, name := range append([]string{"page.css", "icon.svg"}, scripts...) {
		p.mux.HandleFunc("GET /"+name, asset(name))
	}
	p.mux.HandleFunc("GET /events", p.hub.serve)
	return p
}

// policy lets a page run and load nothing but its own files, makes no string HTML, and keeps it out of frames.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// ServeHTTP serves the page, its files and its events. Unless Options.Anywhere says otherwise, it answers 403 to requests that don't come
// from this machine, that a proxy has forwarded, or that name another host: a page elsewhere whose name was made to lead here.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if !p.o.Anywhere && !Local(r) {
		http.Error(w, "this page is for the machine that it runs on", http.StatusForbidden)
		return
	}
	p.mux.ServeHTTP(w, r)
}

// Close ends all streams. The page answers no new one.
func (p *Page) Close() { p.hub.close() }

func asset(name string) http.HandlerFunc {
	b, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err)
	}
	kind := map[string]string{".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}[path.Ext(name)]
	if kind == "" {
		kind = mime.TypeByExtension(path.Ext(name))
	}
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Write(b)
	}
}
