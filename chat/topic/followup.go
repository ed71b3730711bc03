package topic

import (
	"slices"

	"github.com/dormousekv/dormouse/chat"
)

// FollowUp says whether a message leans on what was said before: it refers to something ("it", "those", "one"), or has fewer than two words
// that carry a subject ("And how long?").
func FollowUp(text string) bool {
	words := split(text)
	n := 0
	for i, w := range words {
		switch {
		case w == "it" && slices.Contains(words[i+1:], "to"): // "is it safe to …", "how long does it take to …": it stands for nothing
		case refers[w]:
			return true
		}
		if !common[w] {
			n++
		}
	}
	return n < 2
}

var refers = set("it its that they them their theirs those these this he him his she her hers one ones then else more")

// Of is the embedding of a message to a conversation with these turns (chat.Conversation.Turns), for chat.BeginOptions: what embed makes of it.
// A message that leans on what was said ([FollowUp]) has the embedding of the last turn, whose subject it goes on with.
func Of(text string, turns []chat.TurnInfo, embed func(text string) ([]float32, error)) ([]float32, error) {
	if n := len(turns); n > 0 && FollowUp(text) {
		return turns[n-1].Embedding, nil
	}
	return embed(text)
}
