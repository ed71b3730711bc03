package llamaserver

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"
)

// Where the server is not known to check API keys, keeping requests apart by them is less than it seems: the front says so.
func TestScopeByKeyWithoutKeys(t *testing.T) {
	for _, x := range []struct {
		byKey bool
		own   string // of the server's arguments
		given string // for an attached one
		warns bool
	}{{true, "", "", true}, {true, "secret", "", false}, {true, "", "secret", false}, {false, "", "", false}} {
		said := &logged{}
		f, err := New(&url.URL{Scheme: "http", Host: "127.0.0.1:1"}, &Arguments{APIKey: x.own, Slots: t.TempDir()}, Options{
			Dir: t.TempDir() + "/store", ScopeByKey: x.byKey, APIKey: x.given, Logger: slog.New(slog.NewTextHandler(said, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		f.Close(t.Context())
		if got := strings.Contains(said.String(), "a key is whatever a client says it is"); got != x.warns {
			t.Errorf("%+v: the front says %q", x, said.String())
		}
	}
}
