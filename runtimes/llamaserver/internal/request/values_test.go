package request

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// A field is what the server reads in it: a default that is said aloud says nothing.
func TestValuesNotPresence(t *testing.T) {
	for _, c := range []struct {
		e    Endpoint
		more string
		want error
	}{
		{Completion, `"id_slot":-1`, nil},
		{Completion, `"id_slot":-1.0`, nil},
		{Completion, `"id_slot":null`, nil},
		{Completion, `"id_slot":"-1"`, nil}, // of what is no number, the server says that it is the default
		{Completion, `"id_slot":[]`, nil},
		{Completion, `"id_slot":0`, PassSlot},
		{Completion, `"id_slot":false`, PassSlot},
		{Completion, `"id_slot":-2`, PassSlot}, // the server counts from the other end
		{Chat, `"id_slot":-1,"n_cache_reuse":0,"cache_prompt":true,"n":1`, nil},
		{Completion, `"n_cache_reuse":0`, nil},
		{Completion, `"n_cache_reuse":0.0`, nil},
		{Completion, `"n_cache_reuse":null`, nil},
		{Completion, `"n_cache_reuse":1`, PassReuse},
		{Completion, `"n_cache_reuse":-1`, PassBody},
		{Completion, `"n_cache_reuse":"0"`, PassBody},
		{Completion, `"cache_prompt":null`, nil},
		{Completion, `"cache_prompt":0`, PassBody},
		{Completion, `"cache_prompt":false`, PassOff},
		{Chat, `"n":1.0`, nil},
		{Chat, `"n":null`, nil},
		{Chat, `"n_cmpl":1`, nil},
		{Chat, `"n_cmpl":null,"n":1`, nil},
		{Chat, `"n_cmpl":1,"n":2`, nil}, // the server reads the first that says something
		{Chat, `"n_cmpl":2,"n":1`, PassMany},
		{Chat, `"n":2`, PassMany},
		{TextCompletion, `"best_of":1`, nil},
		{Messages, `"id_slot":0,"cache_prompt":false,"n":2,"n_cache_reuse":9`, nil}, // the server reads none of these there
		{Responses, `"id_slot":-1,"cache_prompt":true`, nil},
	} {
		for _, mark := range []string{"", "\xef\xbb\xbf", "\xef\xbb\xbf \n"} {
			r, err := Parse(c.e, []byte(mark+`{`+c.more+`}`))
			if !errors.Is(err, c.want) {
				t.Errorf("%v %q{%s}: %v, expected %v", c.e, mark, c.more, err, c.want)
			}
			if err == nil && !json.Valid(r.With(`"id_slot":3`)) {
				t.Errorf("%q{%s} became %q", mark, c.more, r.With(`"id_slot":3`))
			}
		}
	}
	if _, err := Parse(Completion, []byte(" \xef\xbb\xbf{}")); !errors.Is(err, PassBody) { // the server takes a mark at the beginning only
		t.Errorf("a mark behind a space: %v", err)
	}
}

// letters is a server that makes a token of each letter.
type letters struct{}

func (letters) ApplyTemplate(context.Context, []byte) (string, error) { return "", nil }

func (letters) Tokenize(_ context.Context, text string, special bool) (out []int32, err error) {
	if special {
		out = append(out, 1)
	}
	for _, r := range text {
		out = append(out, r)
	}
	return out, nil
}

// One prompt is one prompt, also as the only one of a list, or in an object.
func TestWaysToGiveAPrompt(t *testing.T) {
	for _, c := range []struct {
		prompt string
		want   []int32
		err    error
	}{
		{`"ab"`, []int32{1, 'a', 'b'}, nil},
		{`["ab"]`, []int32{1, 'a', 'b'}, nil},
		{`[5,6]`, []int32{5, 6}, nil},
		{`[[5,6]]`, []int32{5, 6}, nil},
		{`[5,"a",6]`, []int32{5, 'a', 6}, nil},
		{`["a",6]`, []int32{1, 'a', 6}, nil},
		{`[[5,"a",6]]`, []int32{5, 'a', 6}, nil},
		{`{"prompt_string":"a"}`, []int32{1, 'a'}, nil},
		{`{"prompt_string":["a"]}`, []int32{1, 'a'}, nil},
		{`[{"prompt_string":"a"}]`, []int32{1, 'a'}, nil},
		{`{"prompt_string":"a","multimodal_data":[]}`, nil, PassMedia},
		{`{"prompt":"a"}`, nil, PassBody},
		{`{"prompt_string":{"prompt_string":"a"}}`, nil, PassBody},
		{`[["a"]]`, nil, PassBody},
		{`["a","b"]`, nil, PassMany},
		{`[[5],[6]]`, nil, PassMany},
		{`[5,null]`, nil, PassBody},
		{`[]`, nil, PassBody},
		{`null`, nil, PassBody},
		{`5`, nil, PassBody},
	} {
		r, err := Parse(Completion, []byte(fmt.Sprintf(`{"prompt":%s}`, c.prompt)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Render(context.Background(), letters{})
		if !slices.Equal(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s: %v %v, expected %v %v", c.prompt, got, err, c.want, c.err)
		}
	}
}

// What goes wrong with one kind of requests says nothing of the others; and what says nothing makes no other kind.
func TestKinds(t *testing.T) {
	for body, want := range map[string]string{
		`{"messages":[]}`: "chat",
		`{"messages":[],"tools":[],"lora":[],"chat_template_kwargs":{},"tool_choice":"auto","response_format":null}`: "chat",
		`{"messages":[],"tools":[{}],"lora":[{"id":0,"scale":1}]}`:                                                   "chat with lora, tools",
	} {
		r, err := Parse(Chat, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Kind(); got != want {
			t.Errorf("%s: %q, expected %q", body, got, want)
		}
	}
}

// Tools that are no functions make another kind, and are named in words that a header may have.
func TestTypesOfParts(t *testing.T) {
	for body, want := range map[string]string{
		`{"input":"a","tools":[{"type":"web_search"},{"type":"function"},{"type":"namespace"},{"type":"web_search"}]}`: "responses with tools, type namespace,web_search",
		`{"input":"a","tools":[{"type":"a\r\nb"},{"name":"f"},{"type":3}]}`:                                            "responses with tools, type none,other",
		`{"input":"a","tools":[{"type":"a"},{"type":"b"},{"type":"c"},{"type":"d"},{"type":"e"}]}`:                     "responses with tools, type a,b,c,d",
	} {
		r, err := Parse(Responses, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Kind(); got != want {
			t.Errorf("%s: %q, expected %q", body, got, want)
		}
		if err := r.Unlike(); !errors.Is(err, PassTools) {
			t.Errorf("%s: %v", body, err)
		}
	}
	for body, want := range map[string]string{
		`{"messages":[],"tools":[{"type":"web_search"}]}`: "tools: web_search", `{"messages":[],"tools":[{"type":"function"}]}`: "not_understood",
	} {
		r, err := Parse(Chat, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Refused().Error(); got != want {
			t.Errorf("%s: %q, expected %q", body, got, want)
		}
	}
}

func TestMostTokens(t *testing.T) {
	for body, want := range map[string]int{
		`{}`: -1, `{"n_predict":-1}`: -1, `{"max_tokens":null}`: -1, `{"n_predict":"5"}`: -1, `{"n_predict":-1,"max_tokens":5}`: -1,
		`{"n_predict":5}`: 5, `{"max_tokens":5,"max_completion_tokens":7}`: 7, `{"max_output_tokens":9}`: 9,
	} {
		r, err := Parse(Completion, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		n, bounded := r.MostTokens()
		if bounded != (want >= 0) || bounded && n != want {
			t.Errorf("%s: %d %v, expected %d", body, n, bounded, want)
		}
	}
}
