package figures

import (
	"strings"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// Outcome is what a store did for a request.
type Outcome uint8

const (
	// Pass: nothing was looked up; Reason says why.
	Pass Outcome = iota
	// Miss: it was looked up, and nothing came out of the store; Reason says why.
	Miss
	// Hit: tokens came out of the store; Reason says why no more.
	Hit
	// Slot: nothing had to come out of the store, since the server still had tokens in its memory; Reason says why no more.
	Slot
	// Cancelled: the client left before the end of its answer.
	Cancelled
)

// Outcomes are all of them.
var Outcomes = []Outcome{Hit, Slot, Miss, Pass, Cancelled}

func (o Outcome) String() string {
	return [...]string{Pass: "pass", Miss: "miss", Hit: "hit", Slot: "slot", Cancelled: "cancelled"}[min(o, Cancelled)]
}

// MarshalText has JSON say an outcome in a word.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads that word. What is not known is Pass.
func (o *Outcome) UnmarshalText(b []byte) error {
	*o = Pass
	for _, x := range Outcomes {
		if x.String() == string(b) {
			*o = x
		}
	}
	return nil
}

// Request is one request that has ended. What is not known is zero.
type Request struct {
	Ended   time.Time // zero: when it is added
	Model   string    // its name
	Outcome Outcome
	Reason  string // a code: [Code] of a store's reason, or the front's own, such as "media"
	Types   string // types of the request's parts that the reason is about, with commas between: "web_search"; letters, digits, underscores, points and hyphens

	Endpoint  string        // the path that was asked: "/v1/chat/completions"
	Client    string        // what program asked, by the headers: "claude-code"; empty: not known
	FirstByte time.Duration // from when the request came to the first byte of its answer; of a stream, that is the first token
	Cancelled bool          // the client left before the end: then Outcome is Cancelled, whatever was planned

	// Of a prompt either Reused and Computed add up to its tokens, or both are 0: then it is not known what became of them.
	Asked    int // tokens of the prompt
	Reused   int // of these, not computed: they came out of the store, or were in the server's memory
	Computed int // of these, computed
	Restored int // brought out of the store into the server
	Unused   int // of these, restored but not reused

	Lookup, Restore, Prefill time.Duration

	Parted *Parted // where the prompt parted from the nearest one, if it reused little; nil: it did not, or nobody knows

	// Saved is how much longer the request would have taken without the store: the time in which the model's measured prefill rate computes what
	// was restored and used, less Lookup and Restore; never below 0, and 0 until that rate is known, or where nobody says what was used. The recorder
	// fills it in.
	Saved time.Duration
}

// Known reports whether it is known what became of the prompt's tokens.
func (q *Request) Known() bool { return q.Reused+q.Computed > 0 }

// FromStore are the tokens that came out of the store and were used.
func (q *Request) FromStore() int {
	if !q.Known() {
		return 0
	}
	return min(max(0, q.Restored-q.Unused), q.Reused)
}

// How long the code of a reason and the types that it is about may be, in bytes.
const (
	maxCode  = 40
	maxTypes = 140
)

// Codes that are not a store's reasons.
const (
	Other       = "other"        // every reason that is none
	ServerCache = "server_cache" // the server still had what a store would have given

	// Why a front did not restore what was found.
	TooFew        = "too_few"        // so few tokens that computing them takes no longer
	TooSlow       = "too_slow"       // restores of this size have taken longer than computing them
	NotReused     = "not_reused"     // the server computed again what it had, or was given
	NotChosen     = "not_chosen"     // so little of the prompt that the server would choose another slot than the one with it
	SlotTaken     = "slot_taken"     // another client of the server works in the slot
	RestoreFailed = "restore_failed" // the server, or the disk, did not do it
	LookupFailed  = "lookup_failed"  // the store did not answer

	ClientLeft  = "client_left"  // before the end of its answer
	NotAnswered = "not_answered" // by the server, but with an error, or not to the end
)

// Code is a store's reason as a code: "nothing_stored".
func Code(c kv.ReasonCode) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case ' ':
			return '_'
		case '\'', '(', ')':
			return -1
		}
		return r
	}, c.String())
}

// maxPath is the longest path of an endpoint, and maxClient the longest name of a client, in bytes.
const (
	maxPath   = 60
	maxClient = 40
)

// plain is a name if it is made of what names of endpoints and clients have, and nothing if it is not.
func plain(name string, most int) string {
	if len(name) > most {
		return ""
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("/_-.", r) {
			return ""
		}
	}
	return name
}

// maxAdvice is the longest advice, in bytes.
const maxAdvice = 400

// checked is a copy of which a page may show all.
func (p *Parted) checked() *Parted {
	if p == nil {
		return nil
	}
	out := *p
	out.Token, out.Common, out.Age = max(0, p.Token), max(0, p.Common), max(0, p.Age)
	out.Part = plain(strings.ReplaceAll(p.Part, " ", "_"), maxCode)
	out.Part = strings.ReplaceAll(out.Part, "_", " ")
	if out.Cause != "" {
		out.Cause = clean(p.Cause)
	}
	if len(p.Advice) > maxAdvice {
		out.Advice = p.Advice[:maxAdvice]
	}
	out.Advice = strings.ToValidUTF8(out.Advice, "")
	return &out
}

// clean is a code that may be shown to anybody.
func clean(code string) string {
	if code == "" || len(code) > maxCode {
		return Other
	}
	for _, r := range code {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' {
			return Other
		}
	}
	return code
}

// cleanTypes are types that may be shown to anybody: words of the protocols, with commas between. Others are none.
func cleanTypes(types string) string {
	if len(types) > maxTypes || strings.Trim(types, "abcdefghijklmnopqrstuvwxyz0123456789_.,-") != "" {
		return ""
	}
	return types
}

// words are what people are told of a code.
var words = map[string]string{
	"no_reason":           "no reason given",
	"complete":            "all that was asked for",
	"nothing_stored":      "nothing stored begins like this prompt",
	"diverged":            "what is stored goes on differently",
	"stored_prefix_ends":  "nothing is stored beyond",
	"inside_a_span":       "the shared part ends inside an image or clip",
	"window_rows_missing": "rows of the sliding window were not stored",
	"no_state":            "no state is stored at this place",
	"damaged":             "a stored block is damaged",
	"gone":                "evicted or deleted meanwhile",
	"too_short":           "too short to be worth it",
	"lookup_off":          "the request asked for no cache",
	"callers_memory_ends": "the runtime has no room for more",
	"key_collision":       "another prompt has this key",
	"media":               "it has an image or a sound",
	"several_answers":     "several answers to one prompt",
	"slot_chosen":         "the client chose the slot itself",
	"rows_shifted":        "the server was told to shift rows, which nobody may keep",
	"no_store":            "there is no store just now",
	"unknown_model":       "a model that cannot be named exactly",
	"model_being_read":    "the server has just started, and what it runs is being looked at",
	"model_being_hashed":  "the model's file is read for the first time, or has changed: that takes about a second a gigabyte, once",
	"server_loading":      "the server loads its model, or does not answer yet",
	"server_arguments":    "an argument of the server that changes rows",
	"other_rows":          "the server computes other rows than those stored for its model",
	"files_changed":       "a file of the model was replaced: which one the server has loaded cannot be seen",
	"slots_not_saved":     "the server saves no slots",
	"rendered_otherwise":  "the server renders this prompt otherwise than it says",
	"tools":               "tools that are no functions, which the server renders otherwise, or refuses",
	"not_understood":      "a body that is not understood: the server answers it",
	"body_too_large":      "a body so large that it is not looked at: the server answers it",
	"too_long":            "longer than the context of a slot: the server says so",
	"adapters":            "adapters that cannot be named exactly",
	"unknown_endpoint":    "an endpoint that is passed through",
	"server_failed":       "the server did not answer what the front asked",
	"api_key":             "the server does not take the API key",
	ServerCache:           "the server still had it in its slot",
	TooFew:                "so few tokens that computing them takes no longer",
	TooSlow:               "restores of this size have taken longer than computing; it is tried again now and then",
	NotReused:             "the server computed again what it had, or was given; it is tried again now and then",
	NotChosen:             "less than a tenth of the prompt: llama-server goes on in a slot that it chooses itself",
	SlotTaken:             "another client of the server works in the slot",
	RestoreFailed:         "it was found, and could not be restored",
	LookupFailed:          "the store could not be asked",
	ClientLeft:            "the client left before the end of its answer",
	NotAnswered:           "the server answered with an error, or broke off",
	Other:                 "another reason",
}

// Words say a code to people. Of a code that is not known they are the code.
func Words(code string) string {
	if w, ok := words[code]; ok {
		return w
	}
	return strings.ReplaceAll(code, "_", " ")
}
