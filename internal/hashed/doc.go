// Package hashed is a runtime for tests of laws: its attention is a hash of exactly the rows that are visible, so that every row that is
// wrong, missing or too many changes the answer.
//
// It owns
//
//   - [Row]: what a token leaves behind, SHA-256 of its token, its position, and all rows with their positions that its sequence showed it;
//   - [Runtime]: sequences that share cells, and a model of a real store beneath; it has the methods that package chat asks of a runtime;
//   - [Options.Expect]: the same answers from a plain list of who saw whom, for the model that a test keeps beside it.
//
// It promises to be strict: what package chat says that a caller does not do, is an error here, and calls by two goroutines at once are a panic; looks of a test may come at any time.
// It counts what it did, and fails when it is told to. It must not know package chat, whose tests it is for.
package hashed
