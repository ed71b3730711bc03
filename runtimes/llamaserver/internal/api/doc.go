// Package api speaks to a llama-server over HTTP.
//
// [Client] has one method for each endpoint that the front asks by itself. [Bounded] is a client that stops making tokens of a prompt that no slot has
// room for. The functions of errors.go tell what an error means: the server loads its model, refuses for good, or cannot be reached.
//
// It must not know what is stored, nor which request gets which slot.
package api
