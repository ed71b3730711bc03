package request

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// plainly is a server whose template writes roles and contents one behind the other, and tools behind the first.
type plainly struct{ letters }

func (plainly) ApplyTemplate(_ context.Context, body []byte) (string, error) {
	var r struct {
		Messages []struct {
			Role    string
			Content any
		}
		Tools json.RawMessage
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return "", err
	}
	var out strings.Builder
	for i, m := range r.Messages {
		text, _ := m.Content.(string)
		parts, _ := m.Content.([]any)
		for _, p := range parts {
			text += p.(map[string]any)["text"].(string)
		}
		out.WriteString("<" + m.Role + ">" + text)
		if i == 0 {
			out.Write(r.Tools)
		}
	}
	return out.String() + "<assistant>", nil
}

// A prefix is what comes before the last message of the user, whatever follows that.
func TestPrefix(t *testing.T) {
	for _, c := range []struct {
		e          Endpoint
		body, want string
	}{
		{Chat, `{"messages":[{"role":"system","content":"S"},{"role":"user","content":"q"}]}`, "<system>S<user>"},
		{Chat, `{"messages":[{"role":"system","content":"S"}],"tools":[1]}`, "<system>S[1]<user>"},
		{Chat, `{"messages":[{"role":"system","content":"S"},{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"\u00b6"},{"role":"assistant","content":"b"}]}`, "<system>S<user>q<assistant>a<user>"},
		{Messages, `{"system":"S","messages":[{"role":"user","content":[{"type":"text","text":"q"}]},{"role":"system","content":"agents"}]}`, "<system>S<user>"},
		{Responses, `{"instructions":"S","input":"q"}`, "<system>S<user>"},
		{Responses, `{"instructions":"S","input":[{"role":"developer","content":"D"},{"type":"message","role":"user","content":[{"type":"input_text","text":"q"}]}]}`, "<system>S<developer>D<user>"},
		{Completion, `{"prompt":"all of it"}`, "all of it"},
	} {
		r, err := Parse(c.e, []byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		tokens, err := r.Prefix(t.Context(), plainly{})
		var got strings.Builder
		for i, n := range tokens {
			if i > 0 { // the one that begins every prompt
				got.WriteRune(n)
			}
		}
		if err != nil || got.String() != c.want {
			t.Errorf("%s: %q, %v; expected %q", c.body, got.String(), err, c.want)
		}
		if e := Guess([]byte(c.body)); e != c.e {
			t.Errorf("%s is guessed to be %v, expected %v", c.body, e, c.e)
		}
	}
	for _, body := range []string{`{"messages":"x"}`, `{"messages":5}`} {
		r, err := Parse(Chat, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Prefix(t.Context(), plainly{})
	}
	if e := Guess([]byte(`{"model":"m"}`)); e != None {
		t.Errorf("of nothing %v is guessed", e)
	}
}
