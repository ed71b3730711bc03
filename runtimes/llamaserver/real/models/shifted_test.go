package models_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// Rows that the server has shifted for a request are approximations. Who asks for the same prompt afterwards, and not for that, gets none of them, and
// none are stored.
func TestShiftedRowsStayWithWhoAskedForThem(t *testing.T) {
	body, whole, short := rig.Shiftable()
	for _, ram := range []string{"0", "100"} {
		t.Run(ram, func(t *testing.T) {
			args := []string{"-c", "2048", "-np", "1", "--cache-ram", ram}
			want := rig.Alone(t, body(short, nil), args...)
			r := rig.Start(t, llamaserver.Options{}, args...)
			r.Ask("/completion", body(whole, nil))
			r.Saved()
			got := r.Ask("/completion", body(short, rig.Object{"n_cache_reuse": 16}))
			if got.A.Cached < 100 {
				t.Fatalf("nothing was shifted: %+v", got)
			}
			got = r.Ask("/completion", body(short, nil))
			if got.Text != want {
				t.Errorf("by shifted rows: %q (%s, %d reused), alone %q", got.Text, got.Header, got.A.Cached, want)
			}
			r.Saved()
			r.KillServer()
			got = r.Ask("/completion", body(short, nil))
			if !strings.HasPrefix(got.Header, "hit") || got.Text != want {
				t.Errorf("by what was stored: %q (%s, %d reused), alone %q", got.Text, got.Header, got.A.Cached, want)
			}
		})
	}
}

// A client may have a slot read a file of its own, of which nobody knows how it was computed.
func TestSlotFileOfAClient(t *testing.T) {
	model, other := rig.TwoModels(t)
	folder := t.TempDir()
	a := rig.Story("Read", 8)
	args := []string{"-c", "2048", "-np", "1", "--cache-ram", "0", "--slot-save-path", folder}
	want := rig.Alone(t, a, append(args, "-m", model)...)
	base := rig.Plain(t, append(args, "-m", other)...) // of the weights that were there before
	rig.Ask(t, t.Context(), base, "/completion", a)
	if got := rig.Ask(t, t.Context(), base, "/slots/0?action=save", rig.Object{"filename": "mine"}); got.Status != 200 {
		t.Fatalf("%+v", got)
	}
	r := rig.Start(t, llamaserver.Options{}, append(args, "-m", model)...)
	for _, query := range []string{"action=restore", "action=erase&action=restore", "action=restor%65"} {
		if got := r.Ask("/slots/0?"+query, rig.Object{"filename": "mine"}); got.Status != 200 {
			t.Fatalf("%+v", got)
		}
		got := r.Ask("/completion", a)
		if got.Text != want {
			t.Errorf("%s: %q (%s, %d reused), alone %q", query, got.Text, got.Header, got.A.Cached, want)
		}
		r.Saved()
	}
	r.KillServer()
	if got := r.Ask("/completion", a); got.Text != want || !strings.HasPrefix(got.Header, "hit") {
		t.Errorf("by what was stored: %q (%s, %d reused), alone %q", got.Text, got.Header, got.A.Cached, want)
	}
}

// An endpoint that cannot name its slot gets what the server finds, in another slot or in its memory: where shifted rows may be among that, it is not stored.
func TestShiftedRowsAreFoundByTheServer(t *testing.T) {
	talk := func(skip int, more rig.Object) rig.Object {
		words := strings.Repeat(" and they all saw the big red ball", 4)
		list := []rig.Object{{"role": "assistant", "content": "No, no, no! The fish" + words + strings.Repeat(" and it was very sad", 5)}, {"role": "user", "content": "She" + words[:100]}}
		if skip == 1 {
			list = list[1:]
		}
		b := rig.Object{"messages": list, "max_tokens": 24, "temperature": 0}
		for k, v := range more {
			b[k] = v
		}
		return b
	}
	const chat, messages = "/v1/chat/completions", "/v1/messages"
	args := []string{"-c", "2048", "-np", "1", "--cache-ram", "100"}
	plainly := rig.Plain(t, args...)
	want := rig.Ask(t, t.Context(), plainly, chat, talk(1, rig.Object{"cache_prompt": false}))
	client := &api.Client{Base: rig.MustParse(t, plainly), Client: http.DefaultClient}
	text := func(skip int) string {
		b, _ := json.Marshal(talk(skip, nil))
		out, err := client.ApplyTemplate(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	r := rig.Start(t, llamaserver.Options{}, args...)
	r.Ask("/completion", rig.Object{"prompt": text(8), "n_predict": 1})
	r.Saved()
	shifted := r.Ask("/completion", rig.Object{"prompt": text(1), "n_predict": 24, "temperature": 0, "n_cache_reuse": 16})
	if shifted.A.Cached < 40 || shifted.Text == want.Text {
		t.Fatalf("nothing was shifted: %+v %q, alone %q", shifted.A, shifted.Text, want.Text)
	}
	r.Ask("/completion", rig.Object{"prompt": "Once", "n_predict": 1, "cache_prompt": false}) // what was shifted goes to the server's memory
	for _, path := range []string{messages, chat, messages, chat} {
		got := r.Ask(path, talk(1, nil))
		t.Logf("%s: %s, %d reused %q", path, got.Header, got.A.Cached, got.Text)
		r.Saved()
	}
	r.KillServer()
	for range 2 {
		got := r.Ask(chat, talk(1, nil))
		if got.Text != want.Text {
			t.Errorf("%q (%s, %d reused), alone %q", got.Text, got.Header, got.A.Cached, want.Text)
		}
		r.Saved()
	}
}
