package rig

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/answer"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
)

// Reply is an answer.
type Reply struct {
	Status int
	Header string // X-Dormouse
	Body   string
	Text   string
	A      answer.Answer
}

// Ask sends a request to an address.
func Ask(t testing.TB, ctx context.Context, base, path string, body any) Reply {
	t.Helper()
	b, ok := body.(string)
	if !ok {
		j, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		b = string(j)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Reply{Body: err.Error()}
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return Reply{Status: resp.StatusCode, Body: err.Error()}
	}
	out := Reply{Status: resp.StatusCode, Header: resp.Header.Get(llamaserver.Header), Body: string(all), A: answer.Read(all)}
	var v struct {
		Content string `json:"content"`
		Choices []struct {
			Text    string
			Message struct{ Content string }
		}
	}
	if json.Unmarshal(all, &v) == nil {
		out.Text = v.Content
		if len(v.Choices) > 0 {
			out.Text = v.Choices[0].Text + v.Choices[0].Message.Content
		}
	}
	return out
}

// Ask sends a request to the front. One that is not answered in two minutes has no status.
func (r *Rig) Ask(path string, body any) Reply {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return Ask(r.T, ctx, r.URL, path, body)
}

// Object is a JSON object.
type Object = map[string]any

// Story is a greedy completion of a prompt of some length.
func Story(begin string, sentences int) Object {
	var b strings.Builder
	b.WriteString(begin)
	for i := range sentences {
		fmt.Fprintf(&b, " Then the little dog number %d ran to the park and saw a tree.", i)
	}
	return Object{"prompt": b.String(), "n_predict": 16, "temperature": 0}
}

// UntilAnswered asks until the server has loaded its model.
func (r *Rig) UntilAnswered(path string, body any) (got Reply) {
	r.T.Helper()
	r.Eventually(func() bool { got = r.Ask(path, body); return got.Status != http.StatusServiceUnavailable })
	return got
}

// Stream begins a streamed completion and gives its body after the first event. Cancel leaves it.
func (r *Rig) Stream(body Object) (cancel func(), rest *bufio.Reader) {
	r.T.Helper()
	body["stream"] = true
	b, err := json.Marshal(body)
	if err != nil {
		r.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.T.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+"/completion", strings.NewReader(string(b)))
	if err != nil {
		r.T.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.T.Fatal(err)
	}
	r.T.Cleanup(func() { resp.Body.Close() })
	rest = bufio.NewReader(resp.Body)
	if line, err := rest.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
		r.T.Fatalf("the stream begins with %q: %v", line, err)
	}
	return cancel, rest
}

// Leave asks, and goes when the server has computed so many tokens of the prompt.
func (r *Rig) Leave(body Object, after int) {
	r.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan Reply)
	go func() { done <- Ask(r.T, ctx, r.URL, "/completion", body) }()
	direct := &api.Client{Base: r.Base, Client: http.DefaultClient}
	r.Eventually(func() bool {
		select {
		case got := <-done:
			r.T.Fatalf("it was answered too soon: %d %s %s", got.Status, got.Header, got.Body)
		default:
		}
		var list []struct {
			Processing bool `json:"is_processing"`
			Tokens     int  `json:"n_prompt_tokens"`
		}
		if direct.Call(context.Background(), "/slots", nil, nil, &list) != nil {
			return false
		}
		for _, st := range list {
			if st.Processing && st.Tokens >= after {
				return true
			}
		}
		return false
	})
	cancel()
	if got := <-done; got.A.Known {
		r.T.Fatalf("the client did not go: %d %s", got.Status, got.Header)
	}
}

// Sawtooth is a prompt of so many tokens that models without a vocabulary know, too.
func Sawtooth(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 3 + (i*i+i/50)%50
	}
	return out
}

// LongContext are the arguments of a server that takes long prompts, in many small batches.
func LongContext(architecture string) []string {
	return []string{"-c", "24576", "-b", "32", "-ub", "32", "--override-kv", architecture + ".context_length=int:24576"}
}

// AskAs asks with an API key.
func AskAs(t *testing.T, base, path, key string, body any) Reply {
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
	return Reply{Status: resp.StatusCode, Header: resp.Header.Get(llamaserver.Header), Body: string(all), A: answer.Read(all)}
}

// Had is what a client had of an answer.
type Had struct {
	Status int
	Body   string
	Err    error
}

func Do(req *http.Request) Had {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Had{Err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return Had{resp.StatusCode, string(b), err}
}

// Requests is how many requests have ended.
func (r *Rig) Requests() (n int64) {
	for _, c := range r.Front.Figures().Requests {
		n += c
	}
	return n
}

// Longer is a text that is worth being kept.
const Longer = "The little dog ran to the park and saw a big tree. It was very happy, and sat down beside it."

// Claim is how many tokens an answer says were there, if it says so for certain.
func Claim(header string) int {
	_, rest, _ := strings.Cut(header, "; tokens=")
	n, _, _ := strings.Cut(rest, ";")
	v, _ := strconv.Atoi(n)
	return v
}

// Shiftable are two prompts: of the whole one, a server that shifts rows takes all of the short one but a few tokens.
func Shiftable() (body func(tokens []int, more Object) Object, whole, short []int) {
	part := func(n, by int) (out []int) {
		for i := range n {
			out = append(out, 300+(i*i*by+7*i)%150)
		}
		return out
	}
	begin, middle, end := part(20, 3), part(70, 5), part(120, 11)
	whole = append(append(append([]int{1}, begin...), middle...), end...)
	short = append(append([]int{1}, begin...), end...)
	return func(tokens []int, more Object) Object {
		b := Object{"prompt": tokens, "n_predict": 24, "temperature": 0}
		for k, v := range more {
			b[k] = v
		}
		return b
	}, whole, short
}
