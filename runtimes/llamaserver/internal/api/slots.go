package api

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// Slot is one slot in the answer to GET /slots.
type Slot struct {
	ID         int  `json:"id"`
	Last       *int `json:"id_task"` // the task that began last in it; nil: none has since the server loaded its model
	Processing bool `json:"is_processing"`
	Tokens     *int `json:"n_prompt_tokens"` // that it holds; nil: none has begun, or the release does not say
	Context    int  `json:"n_ctx"`
}

// Task returns the number of the last task that began in the slot, 0 if there was none.
func (s Slot) Task() int {
	if s.Last == nil {
		return 0
	}
	return *s.Last
}

// Holds returns how many tokens the slot has, if the server says so.
func (s Slot) Holds() (n int, known bool) {
	if s.Tokens != nil {
		return *s.Tokens, true
	}
	return 0, s.Last == nil
}

// Slots lists the slots of the server.
func (a *Client) Slots(ctx context.Context) (s []Slot, err error) {
	return s, a.Call(ctx, "/slots", nil, nil, &s)
}

// Done is what the server says after it has saved or restored a slot.
type Done struct {
	Saved    int   `json:"n_saved"`
	Written  int64 `json:"n_written"`
	Restored int   `json:"n_restored"`
	Read     int64 `json:"n_read"`
}

// SlotTime bounds one action on a slot. A gigabyte takes about a second.
const SlotTime = 30 * time.Second

// Act saves a slot into a file of the slot folder, or restores it from there: action is "save" or "restore". The server waits until the slot is idle.
func (a *Client) Act(ctx context.Context, action string, slot int, file string) (s Done, err error) {
	body, _ := json.Marshal(map[string]string{"filename": file})
	ctx, cancel := context.WithTimeout(ctx, SlotTime)
	defer cancel()
	return s, a.Call(ctx, "/slots/"+strconv.Itoa(slot), url.Values{"action": {action}}, body, &s)
}

// Compute has the server compute a prompt in a slot, from the first token on and with all adapters off.
func (a *Client) Compute(ctx context.Context, slot int, tokens []int32, adapters map[int]kv.Hash) error {
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
	return a.Call(ctx, "/completion", nil, body, nil)
}

// Adapt has the server compute one token in a slot with the adapters that lora names. If lora is nil, it uses the server's own choice.
func (a *Client) Adapt(ctx context.Context, slot int, token int32, lora json.RawMessage) error {
	fields := map[string]any{"prompt": []int32{token}, "n_predict": 0, "id_slot": slot, "cache_prompt": false}
	if lora != nil {
		fields["lora"] = lora
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return a.Call(ctx, "/completion", nil, body, nil)
}

// Erase empties a slot.
func (a *Client) Erase(ctx context.Context, slot int) error {
	ctx, cancel := context.WithTimeout(ctx, SlotTime)
	defer cancel()
	return a.Call(ctx, "/slots/"+strconv.Itoa(slot), url.Values{"action": {"erase"}}, []byte("{}"), nil)
}
