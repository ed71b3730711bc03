package api

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

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// Client asks a llama-server. Safe for concurrent use.
type Client struct {
	Base   *url.URL
	Key    string // API key; empty: none
	Model  string // of a router: whom to ask; empty: there is one model
	Client *http.Client
}

// maxAnswer bounds what an answer to the front itself may have. A prompt of a million tokens has eight million bytes as JSON.
const maxAnswer = 64 << 20

// Call sends a request and decodes the answer. Without a body it is a GET.
func (a *Client) Call(ctx context.Context, path string, query url.Values, body []byte, answer any) error {
	if a.Model != "" { // a router takes the model from the query of a GET, and from the body of a POST
		if query == nil {
			query = url.Values{}
		}
		query.Set("model", a.Model)
		body = withModel(body, a.Model)
	}
	method := http.MethodGet
	var r io.Reader
	if body != nil {
		method, r = http.MethodPost, bytes.NewReader(body)
	}
	u := a.Base.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), r)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.Key != "" {
		req.Header.Set("Authorization", "Bearer "+a.Key)
	}
	resp, err := a.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return &StatusError{path, resp.StatusCode, errorMessage(b)}
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

// Props is what the front needs of the answer to GET /props.
type Props struct {
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

// Props asks for the properties of the server.
func (a *Client) Props(ctx context.Context) (p Props, err error) {
	return p, a.Call(ctx, "/props", nil, nil, &p)
}

// Health gives no error if the server is ready.
func (a *Client) Health(ctx context.Context) error {
	return a.Call(ctx, "/health", nil, nil, nil)
}

// Tokenize makes tokens of text as the server does for prompts. Special tokens in the text are read. With addSpecial, the tokens that begin every
// prompt stand in front.
func (a *Client) Tokenize(ctx context.Context, text string, addSpecial bool) ([]int32, error) {
	body, err := json.Marshal(map[string]any{"content": text, "add_special": addSpecial, "parse_special": true})
	if err != nil {
		return nil, err
	}
	var out struct {
		Tokens []int32 `json:"tokens"`
	}
	return out.Tokens, a.Call(ctx, "/tokenize", nil, body, &out)
}

// ApplyTemplate renders the messages of a chat request.
func (a *Client) ApplyTemplate(ctx context.Context, body []byte) (string, error) {
	var out struct {
		Prompt *string `json:"prompt"`
	}
	err := a.Call(ctx, "/apply-template", nil, body, &out)
	if err == nil && out.Prompt == nil {
		err = errors.New("llama-server /apply-template: the answer has no prompt")
	}
	if err != nil {
		return "", err
	}
	return *out.Prompt, nil
}

// Adapter is a LoRA adapter in the answer to GET /lora-adapters.
type Adapter struct {
	ID    int     `json:"id"`
	Path  string  `json:"path"`
	Scale float32 `json:"scale"`
	Task  string  `json:"task_name"`
	// Activated adapters apply from the tokens of their invocation on.
	Invocation string `json:"alora_invocation_string"`
}

// Adapters lists the LoRA adapters of the server with their scales.
func (a *Client) Adapters(ctx context.Context) (l []Adapter, err error) {
	return l, a.Call(ctx, "/lora-adapters", nil, nil, &l)
}

// withModel adds the field that tells a router its model to a JSON object.
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

// StartedWith returns the arguments with which a router starts the server of the client's model.
func (a *Client) StartedWith(ctx context.Context) ([]string, error) {
	var out struct {
		Data []struct {
			ID      string   `json:"id"`
			Aliases []string `json:"aliases"`
			Status  struct {
				Args []string `json:"args"`
			} `json:"status"`
		} `json:"data"`
	}
	if err := a.Call(ctx, "/v1/models", nil, nil, &out); err != nil {
		return nil, err
	}
	for _, m := range out.Data {
		if (m.ID == a.Model || slices.Contains(m.Aliases, a.Model)) && len(m.Status.Args) > 0 {
			return m.Status.Args, nil
		}
	}
	return nil, fmt.Errorf("the router does not say with which arguments it starts %q", a.Model)
}

// CountTokens returns how many tokens the server makes of a request.
func (a *Client) CountTokens(ctx context.Context, req *request.Request) (int, error) {
	path := "/v1/responses/input_tokens"
	if req.Endpoint == request.Messages {
		path = "/v1/messages/count_tokens"
	}
	var out struct {
		Tokens *int `json:"input_tokens"`
	}
	err := a.Call(ctx, path, nil, req.Body, &out)
	if err == nil && out.Tokens == nil {
		err = errors.New("llama-server " + path + ": the answer has no count")
	}
	if err != nil {
		return 0, err
	}
	return *out.Tokens, nil
}

// Detokenize makes text of tokens. Special tokens become text, too.
func (a *Client) Detokenize(ctx context.Context, tokens []kv.Token) (string, error) {
	if len(tokens) == 0 {
		return "", nil
	}
	body, err := json.Marshal(map[string]any{"tokens": tokens})
	if err != nil {
		return "", err
	}
	var out struct {
		Content string `json:"content"`
	}
	return out.Content, a.Call(ctx, "/detokenize", nil, body, &out)
}
