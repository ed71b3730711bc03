//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

type object = map[string]any

// transport is what all requests of this program use.
var transport = http.DefaultTransport.(*http.Transport)

// answer is what a client gets.
type answer struct {
	status int
	header string // X-Dormouse
	text   string
	tokens []int32       // where they were asked for
	first  time.Duration // until the first token
	cached int           // tokens of the prompt that were not computed
	prompt int           // tokens that were
	body   string        // of an error
}

func (a answer) String() string {
	return fmt.Sprintf("status %d, %q, %q%s; %d tokens reused, %d computed", a.status, a.header, a.text, a.body, a.cached, a.prompt)
}

// piece is a part of a stream, or an answer as a whole.
type piece struct {
	Content string
	Tokens  []int32
	Timings *struct {
		Cached int `json:"cache_n"`
		Prompt int `json:"prompt_n"`
	}
}

// complete sends a prompt to /completion and reads the answer as it comes.
func complete(ctx context.Context, base string, body object) (a answer, err error) {
	b, err := json.Marshal(body)
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, join(base, "/completion"), bytes.NewReader(b))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	start := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a.status, a.header = resp.StatusCode, resp.Header.Get(llamaserver.Header)
	if a.status != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
		a.body = string(text)
		return a, err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		line := strings.TrimPrefix(lines.Text(), "data: ")
		if line == "" || line[0] == ':' { // it says that it is alive
			continue
		}
		var p piece
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			return a, fmt.Errorf("the answer has %.200q: %w", line, err)
		}
		if a.first == 0 {
			a.first = time.Since(start)
		}
		a.text += p.Content
		a.tokens = append(a.tokens, p.Tokens...)
		if p.Timings != nil {
			a.cached, a.prompt = p.Timings.Cached, p.Timings.Prompt
		}
	}
	return a, lines.Err()
}

// must is complete for answers that have to be.
func must(ctx context.Context, base string, body object) (answer, error) {
	a, err := complete(ctx, base, body)
	if err == nil && (a.status != http.StatusOK || a.text == "") {
		err = fmt.Errorf("the answer is %v", a)
	}
	return a, err
}

// post sends JSON and decodes the answer, whatever its status.
func post(ctx context.Context, url string, body, out any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", url, resp.StatusCode, all)
	}
	if err == nil && out != nil {
		err = json.Unmarshal(all, out)
	}
	return err
}

// get is what an address answers.
func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", url, resp.StatusCode, all)
	}
	return string(all), err
}

// tokenize makes tokens of a text as the server does of prompts.
func tokenize(ctx context.Context, base, text string) ([]int32, error) {
	var out struct{ Tokens []int32 }
	return out.Tokens, post(ctx, join(base, "/tokenize"), object{"content": text, "add_special": true, "parse_special": true}, &out)
}
