package llamaserver_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// Texts are kept only where somebody said so: then they are those on both sides of the place, to the character.
func TestExplain(t *testing.T) {
	r := rig.Templated(t, llamaserver.Options{}, "qwen2.5.jinja")
	one, two := rig.Talk(nil), rig.Talk(rig.Object{"system": "You help the little cat. The folder is /home/öne and you are kind."})
	r.Ask("/v1/chat/completions", one)
	r.Ask("/v1/chat/completions", two)
	if all, err := r.Front.Explain(); err == nil || all != nil {
		t.Errorf("without being asked to: %v, %v", all, err)
	}
	r = rig.Templated(t, llamaserver.Options{Explain: true}, "qwen2.5.jinja")
	r.Ask("/v1/chat/completions", one)
	if got := r.Ask("/v1/chat/completions", two); rig.FieldsOf(got.Header)["age"] == "" { // nobody has a key
		t.Errorf("%q says no age", got.Header)
	}
	all, err := r.Front.Explain()
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	x := all[0]
	if x.Part != "system prompt" || !strings.HasSuffix(x.Before, "The folder is /home/") || !strings.HasPrefix(x.Mine, "öne and") || !strings.HasPrefix(x.Theirs, "one and") ||
		len([]rune(x.Before)) != llamaserver.ExplainedText || len([]rune(x.Mine)) != llamaserver.ExplainedText || x.Endpoint != "/v1/chat/completions" {
		t.Errorf("%+v", x)
	}
	for i := range llamaserver.ExplainedRequests + 5 {
		r.Front.AddExplained(llamaserver.Explained{Token: i})
	}
	if all, _ = r.Front.Explain(); len(all) != llamaserver.ExplainedRequests || all[0].Token != llamaserver.ExplainedRequests+4 {
		t.Errorf("%d are kept, the newest is %+v", len(all), all[0])
	}
	if _, err := r.Front.Purge(t.Context(), llamaserver.Purge{All: true}); err != nil {
		t.Fatal(err)
	}
	if all, _ = r.Front.Explain(); len(all) > 0 {
		t.Errorf("after a purge %d are kept", len(all))
	}
}

// slowTexts is a server that gives no texts.
type slowTexts struct {
	http.RoundTripper
	asked, over chan struct{}
	once        sync.Once
}

func (s *slowTexts) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/detokenize") {
		s.once.Do(func() { close(s.asked); <-r.Context().Done(); close(s.over) })
		return nil, r.Context().Err()
	}
	return s.RoundTripper.RoundTrip(r)
}

// A stream ends when the server has ended it, and its slot is free then, however long it takes to see where its prompt parted.
func TestStreamsEndBeforeThePartIsKnown(t *testing.T) {
	r := rig.Templated(t, llamaserver.Options{}, "qwen2.5.jinja")
	r.Ask("/v1/chat/completions", rig.Talk(nil))
	r.Saved()
	a := r.Front.Look().API
	slow := &slowTexts{RoundTripper: a.Client.Transport, asked: make(chan struct{}), over: make(chan struct{})}
	a.Client = &http.Client{Transport: slow}
	body := rig.Talk(rig.Object{"system": "You help the little cat. The folder is /home/two and you are kind."})
	body["stream"] = true
	r.Ask("/v1/chat/completions", body)
	select {
	case <-slow.over:
		t.Error("the stream ended when the server had been asked in vain for texts")
	default:
	}
	<-slow.asked
	if p := r.LastParted(2); p == nil || p.Part != "" {
		t.Errorf("the figures have %+v", p)
	}
}
