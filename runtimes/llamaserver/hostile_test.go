package llamaserver

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
)

// stream begins a streamed completion and gives its body after the first event. Cancel leaves it.
func (r *rig) stream(body object) (cancel func(), rest *bufio.Reader) {
	r.t.Helper()
	body["stream"] = true
	b, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/completion", strings.NewReader(string(b)))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	rest = bufio.NewReader(resp.Body)
	if line, err := rest.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
		r.t.Fatalf("the stream begins with %q: %v", line, err)
	}
	return cancel, rest
}

// A stream that breaks off in the middle, because its client goes or its server is killed, ends that request alone.
func TestStreamsBreakOff(t *testing.T) {
	r := start(t, Options{}, "-c", "4096", "-np", "2")
	for _, passes := range []bool{false, true} {
		body := story("Breaking off", 6)
		body["n_predict"] = 400
		if passes {
			body["cache_prompt"] = false
		}
		leave, _ := r.stream(body)
		leave()
		_, rest := r.stream(body)
		if err := r.server.Signal(os.Kill); err != nil {
			t.Fatal(err)
		}
		for err := error(nil); err == nil; {
			_, err = rest.ReadString('\n')
		}
		r.settled()
		if got := r.untilAnswered("/completion", story("Breaking off", 6)); got.text == "" {
			t.Errorf("afterwards: %+v", got)
		}
	}
}
