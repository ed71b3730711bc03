package page

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A stream on which nothing happens stays open, over HTTP/2, too, where a deadline that has passed would end it.
func TestQuietStreams(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", version), func(t *testing.T) {
			t.Parallel() // they wait
			p := New(Options{Every: time.Hour})
			p.hub.silence, p.hub.patience = 1500*time.Millisecond, time.Second
			server := httptest.NewUnstartedServer(p)
			server.EnableHTTP2 = version == 2
			server.StartTLS()
			res, err := server.Client().Get(server.URL + "/events")
			if err != nil || res.ProtoMajor != version || res.StatusCode != http.StatusOK {
				t.Fatalf("%+v, %v", res, err)
			}
			lines := bufio.NewScanner(res.Body)
			heard := 0
			for heard < 2 && lines.Scan() {
				if lines.Text() == ": here" {
					heard++
				}
			}
			if heard < 2 {
				t.Errorf("the stream ended after %d comments: %v", heard, lines.Err())
			}
			p.Close()
			for lines.Scan() {
			}
			if err := lines.Err(); err != nil {
				t.Errorf("the end of the stream: %v", err)
			}
			res.Body.Close()
			server.Close()
		})
	}
}
