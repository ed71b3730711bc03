package obs_test

import (
	"context"
	"log"
	"net/http"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/obs"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/obs/page"
)

// An app that keeps a store serves metrics and the page of it.
func Example() {
	ctx, dir, mux := context.Background(), "kv", http.NewServeMux()
	var rec figures.Recorder
	store, err := db.Open(ctx, dir, db.Options{Observer: rec.Observe})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	h := obs.Handler(obs.Options{Store: func() *db.Store { return store }, Front: rec.Read})
	mux.Handle("/metrics", h)

	p := page.New(page.Options{Title: "my app", Store: func() *db.Store { return store }, Front: rec.Read})
	mux.Handle("/dormouse/", http.StripPrefix("/dormouse", p))
	defer p.Close()

	log.Fatal(http.ListenAndServe("127.0.0.1:8080", mux))
}
