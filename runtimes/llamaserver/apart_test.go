package llamaserver

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
)

// A slot whose answer is done, and whose request has not given it back yet, is saved before it is emptied for another key. A client that reads slowly is not
// waited for.
func TestSlotIsSavedBeforeAnotherKeyEmptiesIt(t *testing.T) {
	for name, slow := range map[string]bool{"done": false, "a slow client": true} {
		t.Run(name, func(t *testing.T) {
			table := slots.New(slots.Server{ByKey: true})
			table.Resize(1)
			prompt := kv.Prompt{Tokens: make([]int32, 100), Scope: ScopeOfKey("alice")}
			sl, err := table.Lease(t.Context(), prompt)
			if err != nil {
				t.Fatal(err)
			}
			table.Begun(sl, prompt, &request.Request{})
			var unsaved bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					unsaved = table.Of(sl).Unsaved // a save begins with saying that it is not
					io.WriteString(w, "{}")
					return
				}
				io.WriteString(w, `[{"id":0}]`)
			}))
			defer server.Close()
			base, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			ended := &life{era: &era{}}
			ended.end() // nothing is saved
			a := &apart{byKey: true, api: &api.Client{Base: base, Client: http.DefaultClient}, table: table, saver: &saver{table: table, life: ended}, log: slog.New(slog.DiscardHandler)}
			if !slow {
				time.AfterFunc(20*time.Millisecond, func() { table.Release(sl) })
			}
			if ok, err := a.clear(t.Context(), nil, kv.Prompt{Tokens: make([]int32, 100), Scope: ScopeOfKey("bob")}, true); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if others, _ := table.Others(nil, kv.Prompt{Scope: ScopeOfKey("bob")}); unsaved != slow || len(others) > 0 {
				t.Errorf("it was emptied unsaved: %v; it is empty: %v", unsaved, len(others) == 0)
			}
		})
	}
}
