// Package topic says what a message is about, so that the policy chat.Topic leaves out turns about something else.
//
// It owns
//
//   - [Words]: an embedding by the words of a message, which needs no model, and [WordsThreshold], which labelled messages gave it;
//   - [FollowUp]: whether a message leans on what was said before and has no subject of its own ("How long does it take?"), which no
//     embedding of the message alone can know;
//   - [Of]: both together, with any embedder.
//
// It knows English. docs/conversations.md has what it gets right and wrong on 120 pairs that were held out (testdata), beside a trained
// embedder. It must not know any runtime.
package topic
