package answer

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"
	"time"
)

// Answer is what a server says at the end of an answer.
type Answer struct {
	Known   bool // it said something
	Cached  int  // tokens of the prompt that it did not compute
	Prompt  int  // tokens of the prompt that it computed
	Decoded int
	Prefill time.Duration
	Decode  time.Duration
}

// How much of an answer is kept to be read: of its beginning, where /v1/messages says what was cached, and of its end.
const (
	headBytes = 8 << 10
	tailBytes = 64 << 10
)

// Tail passes an answer on and keeps its beginning and its end.
type Tail struct {
	io.ReadCloser
	buf   []byte
	First func() // called at the first byte
	End   func(last []byte, whole bool)
	whole bool
}

func (t *Tail) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if n > 0 && t.First != nil {
		t.First()
		t.First = nil
	}
	t.buf = append(t.buf, p[:n]...)
	if len(t.buf) > headBytes+2*tailBytes {
		t.buf = append(t.buf[:headBytes], t.buf[len(t.buf)-tailBytes:]...)
	}
	if err == io.EOF {
		t.whole = true
	}
	return n, err
}

func (t *Tail) Close() error {
	err := t.ReadCloser.Close()
	if t.End != nil {
		t.End(t.buf, t.whole)
		t.End = nil
	}
	return err
}

// Read finds the server's figures in the kept part of an answer, streamed or not.
func Read(kept []byte) Answer {
	for v := range objects(kept, `"timings"`) {
		var t struct {
			Cached    *int    `json:"cache_n"`
			Prompt    int     `json:"prompt_n"`
			PromptMS  float64 `json:"prompt_ms"`
			Decoded   int     `json:"predicted_n"`
			DecodedMS float64 `json:"predicted_ms"`
		}
		if json.Unmarshal(v, &t) == nil && t.Cached != nil {
			return Answer{true, *t.Cached, t.Prompt, t.Decoded, milliseconds(t.PromptMS), milliseconds(t.DecodedMS)}
		}
	}
	for v := range objects(kept, `"usage"`) {
		var u struct {
			Read    *int `json:"cache_read_input_tokens"`
			Input   int  `json:"input_tokens"`
			Output  int  `json:"output_tokens"`
			Details struct {
				Cached *int `json:"cached_tokens"`
			} `json:"input_tokens_details"`
			Prompt        int `json:"prompt_tokens"`
			Completion    int `json:"completion_tokens"`
			PromptDetails struct {
				Cached *int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
		if json.Unmarshal(v, &u) != nil {
			continue
		}
		switch {
		case u.Read != nil: // what was read from the cache is not counted as input
			return Answer{Known: true, Cached: *u.Read, Prompt: u.Input, Decoded: u.Output}
		case u.Details.Cached != nil:
			return Answer{Known: true, Cached: *u.Details.Cached, Prompt: u.Input - *u.Details.Cached, Decoded: u.Output}
		case u.PromptDetails.Cached != nil:
			return Answer{Known: true, Cached: *u.PromptDetails.Cached, Prompt: u.Prompt - *u.PromptDetails.Cached, Decoded: u.Completion}
		}
	}
	return Answer{}
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// objects are the JSON objects that are values of a key, the last one first.
func objects(b []byte, key string) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		for end := len(b); ; {
			at := bytes.LastIndex(b[:end], []byte(key))
			if at < 0 {
				return
			}
			rest, ok := bytes.CutPrefix(bytes.TrimLeft(b[at+len(key):], " \t"), []byte(":"))
			var v json.RawMessage
			if ok && json.NewDecoder(bytes.NewReader(rest)).Decode(&v) == nil && len(v) > 0 && v[0] == '{' && !yield(v) {
				return
			}
			end = at
		}
	}
}
