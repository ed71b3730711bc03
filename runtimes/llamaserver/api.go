package llamaserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// api speaks to a llama-server. Safe for concurrent use.
type api struct {
	base   *url.URL
	key    string // API key; empty: none
	model  string // of a router: whom to ask; empty: there is one model
	client *http.Client
}

// statusError is an answer that is none.
type statusError struct {
	path    string
	status  int
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("llama-server %s: status %d: %s", e.path, e.status, e.message)
}

// maxAnswer bounds what an answer to the front itself may have. A prompt of a million tokens has eight million bytes as JSON.
const maxAnswer = 64 << 20

// call sends a request and decodes its answer; body nil: a GET.
func (a *api) call(ctx context.Context, path string, query url.Values, body []byte, answer any) error {
	if a.model != "" { // a router takes the model from the query of a GET, and from the body of a POST
		if query == nil {
			query = url.Values{}
		}
		query.Set("model", a.model)
		body = withModel(body, a.model)
	}
	method := http.MethodGet
	var r io.Reader
	if body != nil {
		method, r = http.MethodPost, bytes.NewReader(body)
	}
	u := a.base.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), r)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.key != "" {
		req.Header.Set("Authorization", "Bearer "+a.key)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return &statusError{path, resp.StatusCode, errorMessage(b)}
	case len(b) > maxAnswer:
		return fmt.Errorf("llama-server %s: the answer has more than %d bytes", path, maxAnswer)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(b, answer); err != nil {
		return fmt.Errorf("llama-server %s: %w", path, err)
	}
	return nil
}

// errorMessage is what a server says in its error, at most a line.
func errorMessage(b []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(b, &e) == nil && e.Error.Message != "" {
		return e.Error.Message
	}
	return string(b[:min(len(b), 200)])
}

// unsupported reports whether the server has no such endpoint, or not for what it runs: slots with media answer 501.
func unsupported(err error) bool {
	var s *statusError
	return errors.As(err, &s) && (s.status == http.StatusNotImplemented || s.status == http.StatusNotFound)
}

// refuses reports whether the server will say the same again: it knows no such model, or not this API key.
func refuses(err error) bool {
	var s *statusError
	return errors.As(err, &s) && s.status >= 400 && s.status < 500
}

// props is what GET /props says, as far as it is needed.
type props struct {
	ModelPath  string `json:"model_path"`
	ModelAlias string `json:"model_alias"`
	Build      string `json:"build_info"`
	TotalSlots int    `json:"total_slots"`
	Modalities struct {
		Vision, Audio, Video bool
	} `json:"modalities"`
	Defaults struct {
		Context int `json:"n_ctx"` // of a slot
	} `json:"default_generation_settings"`
	Sleeping bool   `json:"is_sleeping"`
	Role     string `json:"role"` // "router" of one that starts servers
}

func (a *api) props(ctx context.Context) (p props, err error) {
	return p, a.call(ctx, "/props", nil, nil, &p)
}

func (a *api) health(ctx context.Context) error {
	return a.call(ctx, "/health", nil, nil, nil)
}

// slotState is what GET /slots says of a slot.
type slotState struct {
	ID         int  `json:"id"`
	Last       *int `json:"id_task"` // the task that began last in it; nil: none has since the server loaded its model
	Processing bool `json:"is_processing"`
	Tokens     *int `json:"n_prompt_tokens"` // that it holds; nil: none has begun, or the release does not say
	Context    int  `json:"n_ctx"`
}

// task is the number of the last task, 0 if there was none.
func (s slotState) task() int {
	if s.Last == nil {
		return 0
	}
	return *s.Last
}

// holds is how many tokens a slot has, if the server says so.
func (s slotState) holds() (n int, known bool) {
	if s.Tokens != nil {
		return *s.Tokens, true
	}
	return 0, s.Last == nil
}

func (a *api) slots(ctx context.Context) (s []slotState, err error) {
	return s, a.call(ctx, "/slots", nil, nil, &s)
}

// slotAction is what a slot endpoint answers.
type slotAction struct {
	Saved    int   `json:"n_saved"`
	Written  int64 `json:"n_written"`
	Restored int   `json:"n_restored"`
	Read     int64 `json:"n_read"`
}

// slotTime bounds what is done to a slot: a gigabyte takes about a second.
const slotTime = 30 * time.Second

// slot saves a slot into a file of the slot folder, or restores it from there. It waits until the slot is idle.
func (a *api) slot(ctx context.Context, action string, slot int, file string) (s slotAction, err error) {
	body, _ := json.Marshal(map[string]string{"filename": file})
	ctx, cancel := context.WithTimeout(ctx, slotTime)
	defer cancel()
	return s, a.call(ctx, "/slots/"+strconv.Itoa(slot), url.Values{"action": {action}}, body, &s)
}

// Tokenize makes tokens of text as the server does for prompts: with the tokens that begin every prompt, and with special tokens.
func (a *api) Tokenize(ctx context.Context, text string, addSpecial bool) ([]int32, error) {
	body, err := json.Marshal(map[string]any{"content": text, "add_special": addSpecial, "parse_special": true})
	if err != nil {
		return nil, err
	}
	var out struct {
		Tokens []int32 `json:"tokens"`
	}
	return out.Tokens, a.call(ctx, "/tokenize", nil, body, &out)
}

// ApplyTemplate renders the messages of a chat request.
func (a *api) ApplyTemplate(ctx context.Context, body []byte) (string, error) {
	var out struct {
		Prompt *string `json:"prompt"`
	}
	err := a.call(ctx, "/apply-template", nil, body, &out)
	if err == nil && out.Prompt == nil {
		err = errors.New("llama-server /apply-template: the answer has no prompt")
	}
	if err != nil {
		return "", err
	}
	return *out.Prompt, nil
}

// loraAdapter is what GET /lora-adapters says of one.
type loraAdapter struct {
	ID    int     `json:"id"`
	Path  string  `json:"path"`
	Scale float32 `json:"scale"`
	Task  string  `json:"task_name"`
	// Activated adapters apply from the tokens of their invocation on.
	Invocation string `json:"alora_invocation_string"`
}

func (a *api) adapters(ctx context.Context) (l []loraAdapter, err error) {
	return l, a.call(ctx, "/lora-adapters", nil, nil, &l)
}

// compute has a prompt computed in a slot, from its beginning and without the adapters that the server has.
func (a *api) compute(ctx context.Context, slot int, tokens []int32, adapters map[int]kv.Hash) error {
	fields := map[string]any{"prompt": tokens, "n_predict": 1, "id_slot": slot, "cache_prompt": false, "temperature": 0}
	var off []any
	for id := range adapters {
		off = append(off, map[string]any{"id": id, "scale": 0})
	}
	if off != nil {
		fields["lora"] = off
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return a.call(ctx, "/completion", nil, body, nil)
}

// adapt has a token computed in a slot, with a request's own choice of adapters; lora nil: with the server's.
func (a *api) adapt(ctx context.Context, slot int, token int32, lora json.RawMessage) error {
	fields := map[string]any{"prompt": []int32{token}, "n_predict": 0, "id_slot": slot, "cache_prompt": false}
	if lora != nil {
		fields["lora"] = lora
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return a.call(ctx, "/completion", nil, body, nil)
}

// erase empties a slot.
func (a *api) erase(ctx context.Context, slot int) error {
	ctx, cancel := context.WithTimeout(ctx, slotTime)
	defer cancel()
	return a.call(ctx, "/slots/"+strconv.Itoa(slot), url.Values{"action": {"erase"}}, []byte("{}"), nil)
}

// withModel is a JSON object with the field that tells a router its model.
func withModel(body []byte, model string) []byte {
	var fields map[string]json.RawMessage
	if body == nil || json.Unmarshal(body, &fields) != nil || fields["model"] != nil {
		return body
	}
	fields["model"], _ = json.Marshal(model)
	out, err := json.Marshal(fields)
	if err != nil {
		return body
	}
	return out
}

// startedWith is with which arguments a router starts the server of a model.
func (a *api) startedWith(ctx context.Context) ([]string, error) {
	var out struct {
		Data []struct {
			ID      string   `json:"id"`
			Aliases []string `json:"aliases"`
			Status  struct {
				Args []string `json:"args"`
			} `json:"status"`
		} `json:"data"`
	}
	if err := a.call(ctx, "/v1/models", nil, nil, &out); err != nil {
		return nil, err
	}
	for _, m := range out.Data {
		if (m.ID == a.model || slices.Contains(m.Aliases, a.model)) && len(m.Status.Args) > 0 {
			return m.Status.Args, nil
		}
	}
	return nil, fmt.Errorf("the router does not say with which arguments it starts %q", a.model)
}
