// Package answer finds in an answer of a llama-server, streamed or not, how many tokens it has reused and computed.
package answer
