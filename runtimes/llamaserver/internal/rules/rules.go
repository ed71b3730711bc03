package rules

import (
	"regexp"
)

// Action is what becomes of a text that a rule finds.
type Action string

const (
	Drop Action = "drop" // it goes: only for what no model needs to read
	Move Action = "move" // it becomes a line behind the first user message
	Lead Action = "lead" // it becomes the end of the system prompt: for what says the same in every conversation, and stands behind a question
)

// Part is a part of a request.
type Part string

const (
	System Part = "system"        // the system prompt: of a chat all messages before the first one of another role
	Tools  Part = "tools"         // the descriptions of tools, and of their parameters
	First  Part = "first message" // the first message of the user
	Second Part = "second system" // messages of the system behind that one, and before the first answer
	Last   Part = "last message"  // the last one
	Rest   Part = "messages"      // all messages behind the system prompt
)

// known are all parts.
var known = []Part{System, Tools, First, Second, Last, Rest}

// from are the parts from which a text can be taken elsewhere. What came from a later message would change the first one, or the system prompt, in the middle of
// a conversation.
var from = map[Action][]Part{Move: {System, Tools, First, Second}, Lead: {Second}}

// Rule finds texts in parts of a request, and drops or moves them.
type Rule struct {
	Name    string // as X-Dormouse has it
	Set     string // where it comes from
	Parts   []Part
	Pattern *regexp.Regexp
	Action  Action
	Leave   string // what stays in the place of a text
	Line    string // what a moved text becomes, with $1 for a group of the pattern; empty: the text itself
}

// Rules are applied in their order.
type Rules []Rule
