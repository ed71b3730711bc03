// Package examples holds programs that a newcomer copies from. With nothing but Go: warmstart, whose process is killed; scopes, a chat of
// several people over one system prompt; forget, which deletes one of them. llamachat needs a llama.cpp library and a model file.
package examples
