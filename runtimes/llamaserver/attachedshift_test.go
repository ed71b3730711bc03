package llamaserver_test

import (
	"net/http/httptest"
	"net/http/httputil"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/proc"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// A server that somebody else has started may shift rows for everybody: nothing of it is kept. Where nobody sees that, it is not to do so for the front.
func TestAttachedServerThatShifts(t *testing.T) {
	model, err := filepath.Abs(rig.Stories)
	if err != nil {
		t.Fatal(err)
	}
	body, whole, short := rig.Shiftable()
	args := []string{"-c", "2048", "-np", "1", "--cache-ram", "0", "-m", model}
	want := rig.Alone(t, body(short, nil), args...)
	folder := t.TempDir()
	base := rig.Plain(t, append(args, "--slot-save-path", folder, "--cache-reuse", "16")...)
	if command, _ := proc.StartedAs(rig.MustParse(t, base)); command != nil {
		r := attachedAt(t, base, folder, &llamaserver.Arguments{})
		if got := r.Ask("/completion", body(whole, nil)); got.Header != "pass; reason=server_arguments" {
			t.Errorf("its arguments can be seen: %s", got.Header)
		}
	}
	behind := httptest.NewServer(httputil.NewSingleHostReverseProxy(rig.MustParse(t, base))) // another process has the socket
	defer behind.Close()
	r := attachedAt(t, behind.URL, folder, &llamaserver.Arguments{})
	for _, tokens := range [][]int{whole, short, short} {
		got := r.Ask("/completion", body(tokens, nil))
		if len(tokens) == len(short) && got.Text != want {
			t.Errorf("%q (%s, %d reused), alone %q", got.Text, got.Header, got.A.Cached, want)
		}
		r.Saved()
	}
}
