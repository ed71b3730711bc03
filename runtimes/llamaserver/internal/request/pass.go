package request

import (
	"slices"
	"strings"
)

// Pass says why a request goes to the server as it is.
type Pass string

func (p Pass) Error() string { return string(p) }

// Reasons of requests that are not looked up. figures.Words has them for people.
const (
	PassMedia    Pass = "media"
	PassMany     Pass = "several_answers"
	PassOff      Pass = "lookup_off"
	PassSlot     Pass = "slot_chosen"
	PassReuse    Pass = "rows_shifted"
	PassStore    Pass = "no_store"
	PassModel    Pass = "unknown_model"
	PassHashing  Pass = "model_being_read"
	PassUnhashed Pass = "model_being_hashed" // its file is read for the first time
	PassLoading  Pass = "server_loading"     // the server says so, or does not answer yet
	PassArgs     Pass = "server_arguments"
	PassRows     Pass = "other_rows"
	PassFiles    Pass = "files_changed"
	PassSlots    Pass = "slots_not_saved"
	PassDiffers  Pass = "rendered_otherwise"
	PassTools    Pass = "tools"
	PassBody     Pass = "not_understood"
	PassLarge    Pass = "body_too_large"
	PassLong     Pass = "too_long" // for the context of a slot
	PassAdapters Pass = "adapters"
	PassEndpoint Pass = "unknown_endpoint"
	PassServer   Pass = "server_failed"
	PassKey      Pass = "api_key"
)

// Because is a reason with the types of the parts of a request that it is about: tools with "web_search", not_understood with "item_reference".
type Because struct {
	Pass
	Types Types
}

func (b Because) Error() string { return string(b.Pass) + ": " + b.Types.String() }

func (b Because) Unwrap() error { return b.Pass }

// notUnderstood is that the front does not know what the server makes of a part of this type.
func notUnderstood(kind string) error {
	var t Types
	t.add(kind)
	return Because{PassBody, t}
}

// Types are types of parts, as clients name them: a few, short, sorted, and of letters that a header may have.
type Types []string

const (
	maxTypes = 4
	maxType  = 32
)

func (t Types) String() string { return strings.Join(t, ",") }

func (t *Types) add(kind string) {
	if kind == "" {
		kind = "none"
	}
	if len(kind) > maxType || strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz0123456789_.-") != "" {
		kind = "other"
	}
	if at, known := slices.BinarySearch(*t, kind); !known && len(*t) < maxTypes {
		*t = slices.Insert(*t, at, kind)
	}
}
