package llamaserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// Whoever stops while a prompt is computed, and was told how far it is, has not shown that prompts are rendered in another way.
func TestStoppedWhileAPromptIsComputed(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "512", "-b", "8", "-ub", "8", "-np", "1")
	for i := range 4 {
		body := rig.Story(fmt.Sprint("Long ", i), 16)
		body["stream"], body["return_progress"], body["timings_per_token"] = true, true, true
		leave, _ := r.Stream(body)
		leave()
		r.Settled()
		if got := r.Ask("/completion", rig.Story("Afterwards", 4)); strings.HasPrefix(got.Header, "pass") {
			t.Fatalf("after a client stopped in a prompt: %s", got.Header)
		}
	}
}

// A key is the server's to judge: who has none, or a wrong one, learns nothing of what is stored, and moves nothing.
func TestKeysAreJudgedFirst(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{ScopeByKey: true}, "-c", "2048", "-np", "1", "--api-key", "one,two")
	body, err := json.Marshal(rig.Story("Secret", 8))
	if err != nil {
		t.Fatal(err)
	}
	with := func(header, key string) rig.Reply {
		req, err := http.NewRequest(http.MethodPost, r.URL+"/completion", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(header, key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return rig.Reply{Status: resp.StatusCode, Header: resp.Header.Get(llamaserver.Header)}
	}
	for _, header := range []string{"Authorization", "X-Api-Key"} {
		if got := with(header, "Bearer two"); got.Status != 200 || strings.HasPrefix(got.Header, "pass") {
			t.Errorf("with the second key: %+v", got)
		}
	}
	for _, key := range []string{"Bearer three", "Bearer ", "Bearer Bearer two", ""} {
		if got := with("Authorization", key); got.Status != http.StatusUnauthorized || got.Header != "pass; reason=api_key" {
			t.Errorf("with the key %q: %+v", key, got)
		}
	}
}

// A request that is no HTTP to the server says nothing of the server: what its slots hold is known still.
func TestRequestThatCannotBeSent(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "2048", "-np", "1")
	r.Ask("/completion", rig.Story("Known", 8))
	before := r.Front.Known()
	for _, raw := range []string{
		"GET /slots HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: \xc3\xa9\r\n\r\n",
		"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, raw)
		line, err := bufio.NewReader(c).ReadString('\n')
		c.Close()
		if err != nil || !strings.Contains(line, " 400 ") {
			t.Errorf("%q is answered with %q: %v", raw, line, err)
		}
		if r.Front.Known() != before {
			t.Errorf("after %q the front takes the server for another one", raw)
		}
	}
	if got := r.Ask("/completion", rig.Story("Known", 8)); got.Status != 200 {
		t.Errorf("afterwards: %+v", got)
	}
}

// What is at the server's port and talks no HTTP is a server that does not answer: no fault of the client's.
func TestServerThatTalksNoHTTP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			bufio.NewReader(c).ReadString('\n')
			io.WriteString(c, "SSH-2.0-OpenSSH_9.2\r\n")
			c.Close()
		}
	}()
	base := &url.URL{Scheme: "http", Host: l.Addr().String()}
	front, err := llamaserver.New(base, &llamaserver.Arguments{}, llamaserver.Options{Dir: filepath.Join(t.TempDir(), "store"), Attach: base.String(), SlotDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close(context.Background())
	web := httptest.NewServer(front)
	defer web.Close()
	for _, path := range []string{"/health", "/completion"} {
		resp, err := http.Post(web.URL+path, "application/json", strings.NewReader(`{"prompt":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}
