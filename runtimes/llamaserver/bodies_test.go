package llamaserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// A prompt that is longer than the context passes with a reason of its own, and the server says what it says without a front. What fits to the last token is kept.
func TestTooLong(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{MaxBody: 1 << 20}, "-c", "512")
	tokens := make([]int, 600)
	for i := range tokens {
		tokens[i] = 300 + i%100
	}
	for name, c := range map[string]struct {
		path   string
		body   rig.Object
		reason string
	}{
		"a text":             {"/completion", rig.Object{"prompt": strings.Repeat("The little dog ran to the park. ", 5000)}, "too_long"},
		"a chat":             {"/v1/chat/completions", rig.Object{"messages": []rig.Object{{"role": "user", "content": strings.Repeat("The little dog ran. ", 5000)}}}, "too_long"},
		"tokens":             {"/completion", rig.Object{"prompt": tokens}, "too_long"},
		"texts":              {"/completion", rig.Object{"prompt": []any{1, strings.Repeat("The dog ran. ", 100), strings.Repeat("The cat sat. ", 100)}}, "too_long"},
		"a body of 2 MiB":    {"/completion", rig.Object{"prompt": strings.Repeat("The cat sat on the mat at noon. ", 64<<10)}, "body_too_large"},
		"very many texts":    {"/completion", rig.Object{"prompt": append([]any{1}, anys(strings.Repeat("|", 1200))...)}, "not_understood"},
		"all that has place": {"/completion", rig.Object{"prompt": tokens[:500], "n_predict": 4}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := r.Ask(c.path, c.body)
			if c.reason == "" {
				if got.Status != http.StatusOK || strings.HasPrefix(got.Header, "pass") {
					t.Errorf("%d %q %.200s", got.Status, got.Header, got.Body)
				}
				return
			}
			if got.Header != "pass; reason="+c.reason || c.reason != "not_understood" && got.Status != http.StatusBadRequest {
				t.Errorf("%d %q %.200s, expected %s", got.Status, got.Header, got.Body, c.reason)
			}
		})
	}
}

// anys are texts without anything in them.
func anys(text string) (out []any) {
	for range text {
		out = append(out, "")
	}
	return out
}

// Of a text that is far too long, no more than a part that is bounded by the context is made tokens of.
func TestTooLongIsBounded(t *testing.T) {
	proxy := httputil.NewSingleHostReverseProxy(rig.MustParse(t, rig.Plain(t)))
	var sent atomic.Int64
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent.Add(r.ContentLength)
		proxy.ServeHTTP(w, r)
	}))
	defer between.Close()
	const room = 512
	for name, text := range map[string]string{
		"words": strings.Repeat("The little dog ran to the park. ", 300_000), "letters of two bytes": strings.Repeat("é", 4<<20), "blanks": strings.Repeat(" ", 4<<20),
	} {
		b := &api.Bounded{Client: &api.Client{Base: rig.MustParse(t, between.URL), Client: http.DefaultClient}, Room: room}
		sent.Store(0)
		if out, err := b.Tokenize(t.Context(), text, true); !errors.Is(err, request.PassLong) {
			t.Errorf("%s: %d tokens, %v", name, len(out), err)
		}
		if n := sent.Load(); n > 64*room {
			t.Errorf("%s: %d bytes were sent to be made tokens of", name, n)
		}
	}
}

// A body that stops, or comes a byte now and then, ends with 408, whoever was to read it. An upload that goes on takes its time, and the server is not taken for
// lost.
func TestSlowBodies(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{MaxBody: 100 << 10}, "-c", "512")
	r.Front.SetPace(3*time.Second, time.Second, 1000)
	first := r.Front.Known()
	dribble := func(path string, length int, chunk string, more func() bool) (status int, err error) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.URL, "http://"))
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(rig.Patience))
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, length)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for ctx.Err() == nil && more() {
				io.WriteString(conn, chunk)
				time.Sleep(100 * time.Millisecond)
			}
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, nil
	}
	once := func() func() bool {
		n := 0
		return func() bool { n++; return n == 1 }
	}
	always := func() bool { return true }
	const large = 1 << 20
	for name, c := range map[string]struct {
		path  string
		size  int
		chunk string
		more  func() bool
	}{
		"nothing comes":                       {"/completion", 1000, "", once()},
		"it stops after much":                 {"/completion", 50_000, strings.Repeat("x", 20_000), once()},
		"a byte now and then":                 {"/v1/chat/completions", 5000, "x", always},
		"of another endpoint":                 {"/tokenize", 1000, "{", once()},
		"of one that is too large, then none": {"/completion", large, strings.Repeat("x", 200_000), once()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if status, err := dribble(c.path, c.size, c.chunk, c.more); err != nil || status != http.StatusRequestTimeout {
				t.Errorf("status %d, %v", status, err)
			}
		})
	}
	t.Run("a long upload", func(t *testing.T) {
		t.Parallel()
		begin := `{"prompt":"The little dog","n_predict":2` // blanks follow, for longer than any silence is allowed to be
		var parts []string
		for range 40 {
			parts = append(parts, strings.Repeat(" ", 2000))
		}
		body := begin + strings.Join(parts, "") + "}"
		reader, writer := io.Pipe()
		go func() {
			for len(body) > 0 {
				n := min(2000, len(body))
				io.WriteString(writer, body[:n])
				body = body[n:]
				time.Sleep(100 * time.Millisecond)
			}
			writer.Close()
		}()
		resp, err := http.Post(r.URL+"/completion", "application/json", reader)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
	})
	t.Cleanup(func() {
		if r.Front.Known() != first || first.Gone() {
			t.Error("for a client that was slow, the server is taken for lost")
		}
	})
}
