//go:build cgo

package main

/*
#include "dormouse.h"
*/
import "C"

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/dormousekv/dormouse/db"
)

// What a store says of itself, as JSON: explanations, and lists of models, refs and notes.

type wireExplanation struct {
	Text      string           `json:"text"`
	Prompt    int              `json:"prompt"`
	Tokens    int              `json:"tokens"`
	Reason    string           `json:"reason"`
	ReasonAt  int              `json:"reason_at"`
	Blocks    []wireExplained  `json:"blocks"`
	Elsewhere []wireOtherModel `json:"elsewhere"`
}

type wireExplained struct {
	Key    string   `json:"key"`
	Start  int      `json:"start"`
	End    int      `json:"end"`
	Shared bool     `json:"shared"`
	Groups []string `json:"groups"`
}

type wireOtherModel struct {
	Name        string        `json:"name"`
	Fingerprint string        `json:"fingerprint"`
	Tokens      int           `json:"tokens"`
	Differs     []wireDiffers `json:"differs"`
	Error       string        `json:"error"`
}

type wireDiffers struct {
	Field string `json:"field"`
	Have  string `json:"have"`
	Want  string `json:"want"`
}

//export goExplain
func goExplain(e *C.dormouse_error, h C.dormouse_model, prompt *C.dormouse_prompt, limit C.size_t, c *C.dormouse_call, buf *C.char, size C.size_t, needed *C.size_t) C.dormouse_status {
	return onModel(e, h, c, func(ctx context.Context, m *model) error {
		p, err := promptOf(prompt)
		if err != nil {
			return err
		}
		p, options := upTo(p, limit)
		x, err := m.Explain(ctx, p, options)
		if err != nil {
			return err
		}
		return giveJSON(explained(x), buf, size, needed)
	})
}

func explained(x db.Explanation) wireExplanation {
	w := wireExplanation{
		Text: x.String(), Prompt: x.Prompt, Tokens: x.Tokens, Reason: x.Reason.Code.String(), ReasonAt: max(0, x.Reason.At),
		Blocks: []wireExplained{}, Elsewhere: []wireOtherModel{},
	}
	for _, b := range x.Blocks {
		w.Blocks = append(w.Blocks, wireExplained{Key: b.Key.String(), Start: b.Start, End: b.End, Shared: b.Scope.IsShared(), Groups: b.Groups})
	}
	for _, o := range x.Elsewhere {
		m := wireOtherModel{Name: o.Name, Fingerprint: o.Fingerprint.String(), Tokens: o.Tokens, Differs: []wireDiffers{}, Error: words(o.Err)}
		for _, d := range o.Differs {
			m.Differs = append(m.Differs, wireDiffers{Field: d.Field, Have: d.Have, Want: d.Want})
		}
		w.Elsewhere = append(w.Elsewhere, m)
	}
	return w
}

// words are an error's; "" for none.
func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

type wireModel struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	Latest      bool   `json:"latest"`
	Blocks      int64  `json:"blocks"`
	Records     int64  `json:"records"`
	Bytes       int64  `json:"bytes"`
	Error       string `json:"error"`
}

//export goModels
func goModels(e *C.dormouse_error, h C.dormouse_store, c *C.dormouse_call, buf *C.char, size C.size_t, needed *C.size_t) C.dormouse_status {
	return onStore(e, h, c, func(ctx context.Context, s *db.Store) error {
		out := []wireModel{}
		for m, err := range s.Models() {
			if err := either(ctx, err); err != nil {
				return err
			}
			out = append(out, wireModel{
				Name: m.Descriptor.Name, Fingerprint: m.Fingerprint.String(), Latest: m.Latest, Blocks: m.Blocks, Records: m.Records, Bytes: m.Bytes, Error: words(m.Err),
			})
		}
		return giveJSON(out, buf, size, needed)
	})
}

type wireRef struct {
	Name      string `json:"name"`
	Model     string `json:"model"`
	Tokens    int    `json:"tokens"`
	Stored    bool   `json:"stored"`
	Pinned    bool   `json:"pinned"`
	Priority  int    `json:"priority"`
	SetMS     int64  `json:"set_ms"`
	ExpiresMS int64  `json:"expires_ms"`
	UsedMS    int64  `json:"used_ms"`
}

//export goRefs
func goRefs(e *C.dormouse_error, h C.dormouse_store, c *C.dormouse_call, buf *C.char, size C.size_t, needed *C.size_t) C.dormouse_status {
	return onStore(e, h, c, func(ctx context.Context, s *db.Store) error {
		out := []wireRef{}
		for r, err := range s.Refs() {
			if err := either(ctx, err); err != nil {
				return err
			}
			out = append(out, wireRef{
				Name: r.Name, Model: r.Model.String(), Tokens: r.Tokens, Stored: r.Stored, Pinned: r.Pinned, Priority: int(r.Priority),
				SetMS: unixMS(r.Set), ExpiresMS: unixMS(r.Expires), UsedMS: unixMS(r.Used),
			})
		}
		return giveJSON(out, buf, size, needed)
	})
}

type wireNote struct {
	Name  string `json:"name"`
	Value string `json:"value"` // hexadecimal
}

//export goNotes
func goNotes(e *C.dormouse_error, h C.dormouse_model, c *C.dormouse_call, buf *C.char, size C.size_t, needed *C.size_t) C.dormouse_status {
	return onModel(e, h, c, func(ctx context.Context, m *model) error {
		out := []wireNote{}
		for name, err := range m.Notes() {
			if err := either(ctx, err); err != nil {
				return err
			}
			value, err := m.Note(name)
			if err != nil {
				return err
			}
			out = append(out, wireNote{Name: name, Value: hex.EncodeToString(value)})
		}
		return giveJSON(out, buf, size, needed)
	})
}

// either is the error of a list, or that of the call's limits.
func either(ctx context.Context, err error) error {
	if err != nil {
		return err
	}
	return ctx.Err()
}

// unixMS is a time in milliseconds since 1970; 0 for none.
func unixMS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
