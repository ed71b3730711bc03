// Package chat keeps conversations with a language model: facts that stay, turns that come and go whole, branches that are dropped, all of
// it there again after the process was killed.
//
// It owns
//
//   - [Host]: the conversations that one runtime computes, and the sequences that it hands out to them;
//   - [Conversation] with its facts and turns, [Turn] with its branches, and the views that a turn attends to;
//   - [Runtime]: what it needs of a runtime; packages below runtimes/ fulfil it without importing this one.
//
// It promises that a turn attended to exactly what its recorded view says, that what was committed is there after a kill and nothing
// else, and that no row is stored under a key that says less than the row depends on (docs/conversations.md).
//
// It speaks tokens. It must not know chat templates, files, or any runtime.
package chat
