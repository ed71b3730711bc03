// Package rules changes requests before they are rendered and forwarded, so that prompts which say the same begin the same: a billing header is
// dropped, a working directory goes from the system prompt to the end of the first user message.
//
// It promises that a body in which no rule finds anything stays what it is, byte for byte, and that of one that is changed only the texts
// change in which a rule found something: names, numbers, order and white space stay. It promises further that a text which a rule moves is
// at the same place in each later turn: behind the first user message, which every later request of a conversation repeats, and not
// behind the last one, which is another message in the next turn. Every model reads it there, and what is before it, system prompt and
// tools, is shared. What leads is at the end of the system prompt in each turn, for the same reason: only what stands before the first answer can.
//
// Rules are JSON ([Parse]); those for known clients are in sets/. It must not know slots, prompts or the store.
package rules
