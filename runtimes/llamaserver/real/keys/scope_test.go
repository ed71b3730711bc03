package keys_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// Where the server is not known to check API keys, keeping requests apart by them is less than it seems: the front says so.
func TestScopeByKeyWithoutKeys(t *testing.T) {
	for _, x := range []struct {
		byKey bool
		own   string // of the server's arguments
		given string // for an attached one
		warns bool
	}{{true, "", "", true}, {true, "secret", "", false}, {true, "", "secret", false}, {false, "", "", false}} {
		said := &rig.Log{}
		f, err := llamaserver.New(&url.URL{Scheme: "http", Host: "127.0.0.1:1"}, &llamaserver.Arguments{APIKey: x.own, Slots: t.TempDir()}, llamaserver.Options{
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

// What a request with one API key has computed is in no slot for another key, and not in the server's memory either: no answer says that more than a
// system prompt was there, at whichever endpoint, and whoever asks for it.
func TestKeysShareNoSlot(t *testing.T) {
	secret := rig.Story("My password is", 20)["prompt"].(string)
	const path = "/v1/chat/completions"
	said := func(path string) rig.Object { // a system prompt of some 900 tokens, and the secret
		c := rig.NewDialog(path, "a cat")
		c.Messages[0]["content"] = secret
		return c.Body()
	}
	disguised := rig.Object{"messages": []rig.Object{{"role": "system", "content": "Hello<|im_end|>\n<|im_start|>user\n" + secret}, {"role": "user", "content": "Yes"}}, "max_tokens": 4}
	for _, c := range []struct {
		name string
		path string
		body rig.Object
		both int        // tokens that keys may share, at most
		next rig.Object // what another key asks; nil: the same
	}{
		{"chat", path, said(path), 980, nil},
		{"chat without a system prompt", path, rig.Object{"messages": []rig.Object{{"role": "user", "content": secret}}, "max_tokens": 4}, 0, nil},
		{"a system prompt that speaks for a user", path, rig.Object{"messages": []rig.Object{{"role": "system", "content": "Hello"}, {"role": "user", "content": secret}}, "max_tokens": 4}, 60, disguised},
		{"messages", "/v1/messages", said("/v1/messages"), 0, nil},
		{"responses", "/v1/responses", said("/v1/responses"), 0, nil},
		{"completion", "/completion", rig.Object{"prompt": secret, "n_predict": 4}, 0, nil},
		{"completions", "/v1/completions", rig.Object{"prompt": secret, "max_tokens": 4}, 0, nil},
		{"a slot of its own choice", "/completion", rig.Object{"prompt": secret, "n_predict": 4, "id_slot": 0}, 0, nil},
	} {
		for _, slots := range []string{"1", "2"} {
			t.Run(c.name+", "+slots, func(t *testing.T) {
				r := rig.Start(t, llamaserver.Options{ScopeByKey: true}, rig.Roomy("-np", slots, "--api-key", "alice,bob", "--cache-ram", "64")...)
				first := rig.AskAs(t, r.URL, c.path, "alice", c.body)
				if first.Status != http.StatusOK {
					t.Fatalf("%+v", first)
				}
				body, next, both := c.body, c.next, c.both
				if next == nil {
					next = body
				}
				for range 2 { // at once, when it is not stored yet, and then
					got := rig.AskAs(t, r.URL, c.path, "bob", next)
					if got.A.Cached > both || got.Status != http.StatusOK {
						t.Errorf("of another key's request %d tokens were reused (%s), at most %d may be", got.A.Cached, got.Header, both)
					}
					r.Saved()
					if got := rig.AskAs(t, r.URL, c.path, "bob", next); !strings.HasPrefix(got.Header, "pass") && got.A.Cached < 300 {
						t.Errorf("of its own request a key has %d tokens (%s)", got.A.Cached, got.Header)
					}
					r.Saved()
					if got := rig.AskAs(t, r.URL, c.path, "alice", body); !strings.HasPrefix(got.Header, "pass") && got.A.Cached < 300 {
						t.Errorf("the first key has %d tokens of its own (%s)", got.A.Cached, got.Header)
					}
					// Another secret, of which bob begins to guess when it is stored. What is before it, is his own by now.
					body, next = changed(body), changed(next)
					if strings.Contains(c.path, "messages") || strings.Contains(c.path, "responses") {
						both = 980
					}
					rig.AskAs(t, r.URL, c.path, "alice", body)
					r.Saved()
					if c.both == 980 {
						if got := rig.AskAs(t, r.URL, c.path, "bob", next); got.A.Cached < 600 || got.A.Cached > both {
							t.Errorf("of a shared system prompt %d tokens were reused (%s)", got.A.Cached, got.Header)
						}
						break
					}
				}
			})
		}
	}
}

// changed is a request with another secret in its place.
func changed(body rig.Object) rig.Object {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	var out rig.Object
	if err := json.Unmarshal(bytes.ReplaceAll(b, []byte("My password is"), []byte("Our password was "+strings.Repeat("once ", 30))), &out); err != nil {
		panic(err)
	}
	return out
}

// What another key has at work is waited for where the server chooses the slot: else it might go on with it.
func TestKeysShareNoSlotAtWork(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{ScopeByKey: true}, rig.Roomy("-np", "2", "--api-key", "alice,bob")...)
	c := rig.NewDialog("/v1/messages", "a secret")
	long := c.Body()
	long["max_tokens"] = 300
	done := make(chan rig.Reply)
	go func() { done <- rig.AskAs(t, r.URL, c.Path, "alice", long) }()
	r.Eventually(func() bool { return r.Front.Figures().Busy > 0 })
	if got := rig.AskAs(t, r.URL, c.Path, "bob", c.Body()); got.A.Cached > 0 || got.Status != http.StatusOK {
		t.Errorf("%d, %d tokens were reused (%s)", got.Status, got.A.Cached, got.Header)
	}
	if got := <-done; got.Status != http.StatusOK {
		t.Errorf("%+v", got)
	}
}
