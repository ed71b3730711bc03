package main

// step is one thing that is done with the conversation.
type step struct {
	do     string // turn, fact, edit, branches, kill
	text   string // of a message or a fact; no text removes a fact
	name   string // of a fact
	recent int    // a turn attends to the facts and to so many of the last turns; 0: to all that are in the cache
	back   int    // edit: how many turns are taken back
	die    bool   // a turn: the process is killed in the middle of the answer, and the turn begun again in the next one
}

const (
	system = "You are a careful guide. Answer in one short line, and use what you know of the person you talk to."
	words  = 12 // of an answer

	factTokens = 130 // of the system prompt and the facts
	ringTokens = 300 // of the turns in the cache
)

// script is the conversation: a walk is planned.
var script = []step{
	{do: "fact", name: "name", text: "Fact: the name of the person is Ada."},
	{do: "fact", name: "city", text: "Fact: Ada lives in the old town by the river."},
	{do: "turn", text: "Hello, can you help me plan a walk?"},
	{do: "turn", text: "I have two hours in the afternoon."},
	{do: "turn", text: "Which way should I go first?"},
	{do: "turn", text: "Is there water on the way?"},
	{do: "fact", name: "dog", text: "Fact: a small dog comes along."},
	{do: "turn", text: "Can the dog run there?"},
	{do: "turn", text: "And if it rains?"},
	{do: "turn", text: "How long is that way?", recent: 2},
	{do: "turn", text: "Tell me about the old bridge.", recent: 1},
	{do: "turn", text: "Who made it?", recent: 2},
	{do: "turn", text: "Back to the walk: where do I eat?"},
	{do: "fact", name: "city", text: "Fact: Ada moved to the hill last week."},
	{do: "turn", text: "So where do I begin now?"},
	{do: "turn", text: "Is it far from my house?", die: true},
	{do: "turn", text: "What can I see from the hill?"},
	{do: "turn", text: "I would like to read something there.", recent: 3},
	{do: "turn", text: "A book about the sea?", recent: 3},
	{do: "edit", back: 1, text: "A book about birds?", recent: 3},
	{do: "turn", text: "Good. What do I take with me?"},
	{do: "branches", text: "Give me three ways to say it."},
	{do: "turn", text: "The first one is good."},
	{do: "kill"},
	{do: "turn", text: "Where were we?"},
	{do: "turn", text: "Do you know my name still?"},
	{do: "turn", text: "And where I live?"},
	{do: "fact", name: "food", text: "Fact: Ada eats no meat, and the dog eats everything that it finds on the way."},
	{do: "turn", text: "What can we eat?"},
	{do: "fact", name: "time", text: "Fact: on Friday the train goes at four, and on Sunday there is no train at all in the afternoon."},
	{do: "fact", name: "shoes", text: "Fact: the left shoe of Ada has a hole, so that no way may lead through water or high grass."},
	{do: "turn", text: "Which way is dry?"},
	{do: "turn", text: "And on Sunday?"},
	{do: "turn", text: "How do I come home?", recent: 2},
	{do: "turn", text: "What if I am late?", recent: 2},
	{do: "fact", name: "dog", text: ""},
	{do: "turn", text: "The dog stays at home after all."},
	{do: "turn", text: "Does that change the way?"},
	{do: "turn", text: "What was the name of the bridge?", recent: 1},
	{do: "turn", text: "Then tell me the plan once more."},
	{do: "turn", text: "Thank you, that is all."},
}
