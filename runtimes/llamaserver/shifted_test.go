package llamaserver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/proc"
)

// shiftable are two prompts: of the whole one, a server that shifts rows takes all of the short one but a few tokens.
func shiftable() (body func(tokens []int, more object) object, whole, short []int) {
	part := func(n, by int) (out []int) {
		for i := range n {
			out = append(out, 300+(i*i*by+7*i)%150)
		}
		return out
	}
	begin, middle, end := part(20, 3), part(70, 5), part(120, 11)
	whole = append(append(append([]int{1}, begin...), middle...), end...)
	short = append(append([]int{1}, begin...), end...)
	return func(tokens []int, more object) object {
		b := object{"prompt": tokens, "n_predict": 24, "temperature": 0}
		for k, v := range more {
			b[k] = v
		}
		return b
	}, whole, short
}

// Rows that the server has shifted for a request are approximations. Who asks for the same prompt afterwards, and not for that, gets none of them, and
// none are stored.
func TestShiftedRowsStayWithWhoAskedForThem(t *testing.T) {
	body, whole, short := shiftable()
	for _, ram := range []string{"0", "100"} {
		t.Run(ram, func(t *testing.T) {
			args := []string{"-c", "2048", "-np", "1", "--cache-ram", ram}
			want := alone(t, body(short, nil), args...)
			r := start(t, Options{}, args...)
			r.ask("/completion", body(whole, nil))
			r.saved()
			got := r.ask("/completion", body(short, object{"n_cache_reuse": 16}))
			if got.a.Cached < 100 {
				t.Fatalf("nothing was shifted: %+v", got)
			}
			got = r.ask("/completion", body(short, nil))
			if got.text != want {
				t.Errorf("by shifted rows: %q (%s, %d reused), alone %q", got.text, got.header, got.a.Cached, want)
			}
			r.saved()
			r.killServer()
			got = r.ask("/completion", body(short, nil))
			if !strings.HasPrefix(got.header, "hit") || got.text != want {
				t.Errorf("by what was stored: %q (%s, %d reused), alone %q", got.text, got.header, got.a.Cached, want)
			}
		})
	}
}

// A client may have a slot read a file of its own, of which nobody knows how it was computed.
func TestSlotFileOfAClient(t *testing.T) {
	model, other := two(t)
	folder := t.TempDir()
	a := story("Read", 8)
	args := []string{"-c", "2048", "-np", "1", "--cache-ram", "0", "--slot-save-path", folder}
	want := alone(t, a, append(args, "-m", model)...)
	base := plain(t, append(args, "-m", other)...) // of the weights that were there before
	ask(t, t.Context(), base, "/completion", a)
	if got := ask(t, t.Context(), base, "/slots/0?action=save", object{"filename": "mine"}); got.status != 200 {
		t.Fatalf("%+v", got)
	}
	r := start(t, Options{}, append(args, "-m", model)...)
	for _, query := range []string{"action=restore", "action=erase&action=restore", "action=restor%65"} {
		if got := r.ask("/slots/0?"+query, object{"filename": "mine"}); got.status != 200 {
			t.Fatalf("%+v", got)
		}
		got := r.ask("/completion", a)
		if got.text != want {
			t.Errorf("%s: %q (%s, %d reused), alone %q", query, got.text, got.header, got.a.Cached, want)
		}
		r.saved()
	}
	r.killServer()
	if got := r.ask("/completion", a); got.text != want || !strings.HasPrefix(got.header, "hit") {
		t.Errorf("by what was stored: %q (%s, %d reused), alone %q", got.text, got.header, got.a.Cached, want)
	}
}

// An endpoint that cannot name its slot gets what the server finds, in another slot or in its memory: where shifted rows may be among that, it is not stored.
func TestShiftedRowsAreFoundByTheServer(t *testing.T) {
	talk := func(skip int, more object) object {
		words := strings.Repeat(" and they all saw the big red ball", 4)
		list := []object{{"role": "assistant", "content": "No, no, no! The fish" + words + strings.Repeat(" and it was very sad", 5)}, {"role": "user", "content": "She" + words[:100]}}
		if skip == 1 {
			list = list[1:]
		}
		b := object{"messages": list, "max_tokens": 24, "temperature": 0}
		for k, v := range more {
			b[k] = v
		}
		return b
	}
	const chat, messages = "/v1/chat/completions", "/v1/messages"
	args := []string{"-c", "2048", "-np", "1", "--cache-ram", "100"}
	plainly := plain(t, args...)
	want := ask(t, t.Context(), plainly, chat, talk(1, object{"cache_prompt": false}))
	client := &api.Client{Base: must(t, plainly), Client: http.DefaultClient}
	text := func(skip int) string {
		b, _ := json.Marshal(talk(skip, nil))
		out, err := client.ApplyTemplate(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	r := start(t, Options{}, args...)
	r.ask("/completion", object{"prompt": text(8), "n_predict": 1})
	r.saved()
	shifted := r.ask("/completion", object{"prompt": text(1), "n_predict": 24, "temperature": 0, "n_cache_reuse": 16})
	if shifted.a.Cached < 40 || shifted.text == want.text {
		t.Fatalf("nothing was shifted: %+v %q, alone %q", shifted.a, shifted.text, want.text)
	}
	r.ask("/completion", object{"prompt": "Once", "n_predict": 1, "cache_prompt": false}) // what was shifted goes to the server's memory
	for _, path := range []string{messages, chat, messages, chat} {
		got := r.ask(path, talk(1, nil))
		t.Logf("%s: %s, %d reused %q", path, got.header, got.a.Cached, got.text)
		r.saved()
	}
	r.killServer()
	for range 2 {
		got := r.ask(chat, talk(1, nil))
		if got.text != want.text {
			t.Errorf("%q (%s, %d reused), alone %q", got.text, got.header, got.a.Cached, want.text)
		}
		r.saved()
	}
}

// A server that somebody else has started may shift rows for everybody: nothing of it is kept. Where nobody sees that, it is not to do so for the front.
func TestAttachedServerThatShifts(t *testing.T) {
	model, err := filepath.Abs(stories)
	if err != nil {
		t.Fatal(err)
	}
	body, whole, short := shiftable()
	args := []string{"-c", "2048", "-np", "1", "--cache-ram", "0", "-m", model}
	want := alone(t, body(short, nil), args...)
	folder := t.TempDir()
	base := plain(t, append(args, "--slot-save-path", folder, "--cache-reuse", "16")...)
	if command, _ := proc.StartedAs(must(t, base)); command != nil {
		r := attachedAt(t, base, folder, &Arguments{})
		if got := r.ask("/completion", body(whole, nil)); got.header != "pass; reason=server_arguments" {
			t.Errorf("its arguments can be seen: %s", got.header)
		}
	}
	behind := httptest.NewServer(httputil.NewSingleHostReverseProxy(must(t, base))) // another process has the socket
	defer behind.Close()
	r := attachedAt(t, behind.URL, folder, &Arguments{})
	for _, tokens := range [][]int{whole, short, short} {
		got := r.ask("/completion", body(tokens, nil))
		if len(tokens) == len(short) && got.text != want {
			t.Errorf("%q (%s, %d reused), alone %q", got.text, got.header, got.a.Cached, want)
		}
		r.saved()
	}
}
