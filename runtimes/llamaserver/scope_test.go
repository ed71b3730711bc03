package llamaserver

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/answer"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
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

// askAs asks with an API key.
func askAs(t *testing.T, base, path, key string, body any) reply {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+path, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{status: resp.StatusCode, header: resp.Header.Get(Header), body: string(all), a: answer.Read(all)}
}

// What a request with one API key has computed is in no slot for another key, and not in the server's memory either: no answer says that more than a
// system prompt was there, at whichever endpoint, and whoever asks for it.
func TestKeysShareNoSlot(t *testing.T) {
	secret := story("My password is", 20)["prompt"].(string)
	const path = "/v1/chat/completions"
	said := func(path string) object { // a system prompt of some 900 tokens, and the secret
		c := newDialog(path, "a cat")
		c.messages[0]["content"] = secret
		return c.body()
	}
	disguised := object{"messages": []object{{"role": "system", "content": "Hello<|im_end|>\n<|im_start|>user\n" + secret}, {"role": "user", "content": "Yes"}}, "max_tokens": 4}
	for _, c := range []struct {
		name string
		path string
		body object
		both int    // tokens that keys may share, at most
		next object // what another key asks; nil: the same
	}{
		{"chat", path, said(path), 980, nil},
		{"chat without a system prompt", path, object{"messages": []object{{"role": "user", "content": secret}}, "max_tokens": 4}, 0, nil},
		{"a system prompt that speaks for a user", path, object{"messages": []object{{"role": "system", "content": "Hello"}, {"role": "user", "content": secret}}, "max_tokens": 4}, 60, disguised},
		{"messages", "/v1/messages", said("/v1/messages"), 0, nil},
		{"responses", "/v1/responses", said("/v1/responses"), 0, nil},
		{"completion", "/completion", object{"prompt": secret, "n_predict": 4}, 0, nil},
		{"completions", "/v1/completions", object{"prompt": secret, "max_tokens": 4}, 0, nil},
		{"a slot of its own choice", "/completion", object{"prompt": secret, "n_predict": 4, "id_slot": 0}, 0, nil},
	} {
		for _, slots := range []string{"1", "2"} {
			t.Run(c.name+", "+slots, func(t *testing.T) {
				r := start(t, Options{ScopeByKey: true}, roomy("-np", slots, "--api-key", "alice,bob", "--cache-ram", "64")...)
				first := askAs(t, r.url, c.path, "alice", c.body)
				if first.status != http.StatusOK {
					t.Fatalf("%+v", first)
				}
				body, next, both := c.body, c.next, c.both
				if next == nil {
					next = body
				}
				for range 2 { // at once, when it is not stored yet, and then
					got := askAs(t, r.url, c.path, "bob", next)
					if got.a.Cached > both || got.status != http.StatusOK {
						t.Errorf("of another key's request %d tokens were reused (%s), at most %d may be", got.a.Cached, got.header, both)
					}
					r.saved()
					if got := askAs(t, r.url, c.path, "bob", next); !strings.HasPrefix(got.header, "pass") && got.a.Cached < 300 {
						t.Errorf("of its own request a key has %d tokens (%s)", got.a.Cached, got.header)
					}
					r.saved()
					if got := askAs(t, r.url, c.path, "alice", body); !strings.HasPrefix(got.header, "pass") && got.a.Cached < 300 {
						t.Errorf("the first key has %d tokens of its own (%s)", got.a.Cached, got.header)
					}
					// Another secret, of which bob begins to guess when it is stored. What is before it, is his own by now.
					body, next = changed(body), changed(next)
					if strings.Contains(c.path, "messages") || strings.Contains(c.path, "responses") {
						both = 980
					}
					askAs(t, r.url, c.path, "alice", body)
					r.saved()
					if c.both == 980 {
						if got := askAs(t, r.url, c.path, "bob", next); got.a.Cached < 600 || got.a.Cached > both {
							t.Errorf("of a shared system prompt %d tokens were reused (%s)", got.a.Cached, got.header)
						}
						break
					}
				}
			})
		}
	}
}

// changed is a request with another secret in its place.
func changed(body object) object {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	var out object
	if err := json.Unmarshal(bytes.ReplaceAll(b, []byte("My password is"), []byte("Our password was "+strings.Repeat("once ", 30))), &out); err != nil {
		panic(err)
	}
	return out
}

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
			ended := &life{era: &era{}}
			ended.end() // nothing is saved
			a := &apart{byKey: true, api: &api.Client{Base: must(t, server.URL), Client: http.DefaultClient}, table: table, saver: &saver{table: table, life: ended}, log: slog.New(slog.DiscardHandler)}
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

// What another key has at work is waited for where the server chooses the slot: else it might go on with it.
func TestKeysShareNoSlotAtWork(t *testing.T) {
	r := start(t, Options{ScopeByKey: true}, roomy("-np", "2", "--api-key", "alice,bob")...)
	c := newDialog("/v1/messages", "a secret")
	long := c.body()
	long["max_tokens"] = 300
	done := make(chan reply)
	go func() { done <- askAs(t, r.url, c.path, "alice", long) }()
	r.eventually(func() bool { return r.front.Figures().Busy > 0 })
	if got := askAs(t, r.url, c.path, "bob", c.body()); got.a.Cached > 0 || got.status != http.StatusOK {
		t.Errorf("%d, %d tokens were reused (%s)", got.status, got.a.Cached, got.header)
	}
	if got := <-done; got.status != http.StatusOK {
		t.Errorf("%+v", got)
	}
}
