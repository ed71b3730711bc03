package llamaserver

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A body that nobody reads for a while, since slots are at work, is not slow: all of it may have come.
func TestBodiesWaitToBeRead(t *testing.T) {
	const size = 8 << 20
	for _, p := range []pace{{silence: 10 * time.Second, grace: time.Second, rate: 1 << 30}, {silence: time.Second, grace: 10 * time.Second, rate: 1 << 30}} {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprintf("%v, HTTP/%d", p.silence, version), func(t *testing.T) {
				t.Parallel()
				web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					r = p.inTime(w, r)
					for range 2 {
						io.ReadFull(r.Body, make([]byte, 1))
						time.Sleep(1500 * time.Millisecond)
					}
					n, err := io.Copy(io.Discard, r.Body)
					fmt.Fprint(w, r.ProtoMajor, n, err)
				}))
				web.EnableHTTP2 = version == 2
				web.StartTLS()
				defer web.Close()
				resp, err := web.Client().Post(web.URL, "text/plain", strings.NewReader(strings.Repeat("x", size)))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if b, err := io.ReadAll(resp.Body); err != nil || string(b) != fmt.Sprint(version, size-2, nil) {
					t.Errorf("%q, %v", b, err)
				}
			})
		}
	}
}
