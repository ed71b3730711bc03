//go:build unix

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

//go:embed client.py
var clientProgram string

// talked is what clients reports.
type talked struct {
	Server    string   `json:"server"`
	Model     string   `json:"model"`
	OpenAI    string   `json:"openai"` // version
	Curl      string   `json:"curl"`
	Requests  int      `json:"requests"` // compared
	Same      int      `json:"same"`
	Outcomes  []string `json:"outcomes"` // of the front
	Busy      int      `json:"busy"`     // slots, at the end
	Differing []string `json:"differing,omitempty"`
	// AloneDiffers is where the server alone does not answer a question as it did before.
	AloneDiffers []string `json:"alone_differs,omitempty"`
	CurlStream   bool     `json:"curl_stream_same"`
	CurlWhole    bool     `json:"curl_whole_same"`
}

// clients has real clients talk to the front and to the server alone, and compares what they get.
func clients(ctx context.Context, r *rig) (any, error) {
	out := &talked{Server: r.version, Model: filepath.Base(r.model)}
	python, err := r.openAI(ctx, out)
	if err != nil {
		return nil, err
	}
	args := []string{"-c", "4096", "-np", "2", "-a", "model"}
	alone, err := r.alone(ctx, args...)
	if err != nil {
		return nil, err
	}
	f, err := r.serve(ctx, filepath.Join(r.dir, "store"), nil, args...)
	if err != nil {
		return nil, err
	}
	if err := f.ready(ctx); err != nil {
		return nil, err
	}
	want, err := python(ctx, alone.url)
	if err != nil {
		return out, fmt.Errorf("the server alone: %w", err)
	}
	for name, w := range want {
		if first := alike(want, name)[0]; !reflect.DeepEqual(first, w) {
			out.AloneDiffers = append(out.AloneDiffers, fmt.Sprintf("%s: %v, before %v", name, w, first))
		}
	}
	// Twice: the second time most of it is stored, and the server is a new one.
	for range 2 {
		got, err := python(ctx, f.url)
		if err != nil {
			return out, err
		}
		for name, w := range want {
			out.Requests++
			if slices.ContainsFunc(alike(want, name), func(w any) bool { return reflect.DeepEqual(got[name], w) }) {
				out.Same++
			} else {
				out.Differing = append(out.Differing, fmt.Sprintf("%s: %v, alone %v", name, got[name], w))
			}
		}
		if _, err := f.stored(ctx); err != nil {
			return out, err
		}
		if err := f.killServer(ctx); err != nil {
			return out, err
		}
	}
	if err := out.curl(ctx, f, alone); err != nil {
		return out, err
	}
	status, err := f.stored(ctx)
	if err != nil {
		return out, err
	}
	for _, c := range status.Requests {
		out.Outcomes = append(out.Outcomes, fmt.Sprintf("%d %s: %s", c.N, c.Outcome, c.Reason))
	}
	for _, sl := range status.Models[0].Slots {
		if sl.Busy {
			out.Busy++
		}
	}
	switch {
	case len(out.Differing) > 0:
		return out, fmt.Errorf("%d of %d results are not those of the server alone: %s", len(out.Differing), out.Requests, strings.Join(out.Differing, "; "))
	case !out.CurlStream || !out.CurlWhole:
		return out, errors.New("what curl gets from the front is not what the server alone sends")
	case out.Busy > 0:
		return out, fmt.Errorf("%d slots are at work, and nobody asks anything", out.Busy)
	}
	return out, f.end()
}

// alike are the answers to the question of that name, which is asked several times, streamed and not: the server alone computes it in other batches
// when it has some of it already, and where two tokens are nearly as likely it may then answer in another way than it did before.
func alike(answers map[string]any, name string) (out []any) {
	for _, n := range slices.Sorted(maps.Keys(answers)) {
		if question(n) == question(name) {
			out = append(out, answers[n])
		}
	}
	return out
}

// question is what is asked under a name of client.py, in whatever way and turn: "json streamed 1" asks what "json 0" does.
func question(name string) string {
	switch words := strings.Fields(name); words[0] {
	case "after", "streamed": // what "whole" asks
		return "whole"
	case "json", "tools", "completion":
		return words[0]
	}
	return name
}

// openAI installs the openai package apart from everything else, and gives what runs the client with it.
func (r *rig) openAI(ctx context.Context, out *talked) (func(ctx context.Context, base string) (map[string]any, error), error) {
	venv := filepath.Join(r.dir, "venv")
	if said, err := exec.CommandContext(ctx, "python3", "-m", "venv", venv).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("python3 -m venv: %w: %s", err, said)
	}
	python := filepath.Join(venv, "bin", "python")
	if said, err := exec.CommandContext(ctx, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "openai").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pip install openai: %w: %s", err, said)
	}
	said, err := exec.CommandContext(ctx, python, "-c", "import openai; print(openai.__version__)").Output()
	if err != nil {
		return nil, fmt.Errorf("importing openai: %w", err)
	}
	out.OpenAI = strings.TrimSpace(string(said))
	if said, err = exec.CommandContext(ctx, "curl", "--version").Output(); err != nil {
		return nil, fmt.Errorf("curl: %w", err)
	}
	out.Curl, _, _ = strings.Cut(string(said), "\n")
	program := filepath.Join(r.dir, "client.py")
	if err := os.WriteFile(program, []byte(clientProgram), 0o600); err != nil {
		return nil, err
	}
	return func(ctx context.Context, base string) (got map[string]any, err error) {
		text, err := exec.CommandContext(ctx, python, program, base, "model").Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				err = fmt.Errorf("%w: %s", err, exit.Stderr[max(0, len(exit.Stderr)-500):])
			}
			return nil, fmt.Errorf("client.py: %w", err)
		}
		return got, json.Unmarshal(text, &got)
	}, nil
}

// curl asks front and server alone with curl -N and compares what is sent, but for what is another each time.
func (out *talked) curl(ctx context.Context, f *front, alone *process) error {
	ask, _ := song(7, 12)
	for _, stream := range []bool{true, false} {
		body, err := json.Marshal(object{"messages": []object{{"role": "user", "content": ask}}, "temperature": 0, "max_tokens": 16, "stream": stream})
		if err != nil {
			return err
		}
		var sent []string
		for _, base := range []string{f.url, alone.url} {
			text, err := exec.CommandContext(ctx, "curl", "-sSN", join(base, "/v1/chat/completions"), "-H", "Content-Type: application/json", "-d", string(body)).Output()
			if err != nil {
				return fmt.Errorf("curl: %w", err)
			}
			sent = append(sent, plain(string(text)))
		}
		if same := sent[0] == sent[1] && len(sent[0]) > 100; stream {
			out.CurlStream = same
		} else {
			out.CurlWhole = same
		}
		// Cancelled in the middle: the next request is answered as ever.
		cut, cancel := context.WithCancel(ctx)
		cmd := exec.CommandContext(cut, "curl", "-sSN", join(f.url, "/completion"), "-d", `{"prompt":"One, two, three, four,","n_predict":500,"ignore_eos":true,"stream":true}`)
		pipe, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = pipe.Read(make([]byte, 64))
		}
		cancel()
		cmd.Wait()
		if err != nil {
			return fmt.Errorf("curl, cancelled: %w", err)
		}
	}
	return nil
}

// plain is an answer without what is another each time: when, which, how long, and what of the prompt was in a cache.
func plain(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		data := strings.TrimSpace(strings.TrimPrefix(line, "data: "))
		var v map[string]any
		if json.Unmarshal([]byte(data), &v) != nil {
			b.WriteString(line)
			continue
		}
		for _, key := range []string{"created", "id", "timings"} {
			delete(v, key)
		}
		if u, ok := v["usage"].(map[string]any); ok {
			delete(u, "prompt_tokens_details")
		}
		j, _ := json.Marshal(v)
		b.WriteString(string(j) + "\n")
	}
	return b.String()
}
