// Command clients puts the real programs that people use before dormouse serve with a real llama-server behind it: agents (Claude Code,
// Codex, opencode, qwen-code, pi, aider) and packages of Python. README.md says how it is run and what it prints.
//
// It owns a table of the clients (agents.go), how each is told to talk to this machine alone and to go on with its conversation, and what
// people are advised to set; a proxy before the front that reads the server's own figures in each answer (watch.go); and the model that is
// quick enough (model.go).
//
// Nothing of a client is patched, and nothing of the user's is touched: home, configuration and folders are temporary.
package main
