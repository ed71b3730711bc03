// Package layout knows how the rows of a model lie in the slot files of a server.
//
// [Identify] reads which model a server runs. [Identity.Describe] completes its descriptor by what a slot file shows, and returns the [Layout]. That
// turns a slot file into prompts with rows, and rows into a slot file.
//
// It must not know the store, nor the server.
package layout
