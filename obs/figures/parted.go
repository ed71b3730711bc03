package figures

import "time"

// Parted says where a prompt parted from the nearest one that was stored or lay in a slot.
type Parted struct {
	Token  int           // position of the first token that differs
	Part   string        // of the request in which that is: "system prompt", "tools", "message 3", "template"; empty: not known
	Common int           // how long both had been the same, in tokens; less than 16 are nothing to speak of
	Age    time.Duration // of the other prompt; 0: not known, or not to be told
	Cause  string        // a code; empty: not known
	Advice string        // a sentence
}
