package llamaserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// What was purged does not come back: not from a slot that was on its way into the store, nor from one at work.
func TestPurgedStaysAway(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{ScopeByKey: true, SaveAfter: time.Hour}, "-c", "4096", "-np", "2")
	with := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.Header.Set("Authorization", "Bearer k")
		r.Front.ServeHTTP(w, req)
	}))
	defer with.Close()
	r.URL = with.URL
	stored := func(body rig.Object) int {
		t.Helper()
		model, err := r.Front.Store().Models(), error(nil)
		n := 0
		for st, e := range model {
			if err = e; err != nil {
				t.Fatal(err)
			}
			m, err := r.Front.Store().Model(st.Fingerprint)
			if err != nil {
				t.Fatal(err)
			}
			tokens, err := (&api.Client{Base: r.Base, Client: http.DefaultClient}).Tokenize(context.Background(), body["prompt"].(string), true)
			if err != nil {
				t.Fatal(err)
			}
			match, err := m.Match(context.Background(), kv.Prompt{Tokens: tokens, Scope: llamaserver.ScopeOfKey("k")}, db.MatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			n = max(n, match.Tokens())
			match.Close()
		}
		return n
	}
	for i := range 20 {
		long := rig.Story(fmt.Sprint("At work ", i), 8)
		long["n_predict"] = 200
		_, rest := r.Stream(long)
		body := rig.Story(fmt.Sprint("A secret ", i), 12)
		if got := r.Ask("/completion", body); !strings.HasPrefix(got.Header, "miss") && !strings.HasPrefix(got.Header, "pass") {
			t.Errorf("before: %s", got.Header)
		}
		look := r.Front.Look()
		r.Eventually(func() bool { return len(look.Table.UnsavedBut(nil)) > 0 })
		if err := r.Front.Flush(context.Background()); err != nil { // what is saved is on its way into the store
			t.Fatal(err)
		}
		if _, err := r.Front.Purge(context.Background(), llamaserver.Purge{Key: "k"}); err != nil {
			t.Fatal(err)
		}
		for err := error(nil); err == nil; {
			_, err = rest.ReadString('\n')
		}
		r.Settled()
		if err := r.Front.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		r.Saved()
		for _, body := range []rig.Object{body, long} {
			if n := stored(body); n > 0 {
				t.Errorf("of %.20q %d tokens are stored after the purge", body["prompt"], n)
			}
		}
	}
}

// A server that refuses to be looked at, because it wants another API key, delays nobody and is not asked again and again.
func TestServerRefusesToBeLookedAt(t *testing.T) {
	r := rig.StartUnready(t, llamaserver.Options{APIKey: "another"}, "--api-key", "secret")
	r.Eventually(func() bool {
		return strings.HasPrefix(r.Ask("/completion", rig.Story("Locked out", 3)).Header, "pass; reason=unknown_model")
	})
	if !r.Front.IsPrepared() {
		t.Error("it is still being looked at")
	}
	if m := r.Model(); !strings.Contains(m.Refused, "401") {
		t.Errorf("the status says %q", m.Refused)
	}
}
