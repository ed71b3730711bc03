// Llamaserver runs the command "dormouse serve -- llama-server …" with a real server and a real model, and compares it with that server alone:
//
//	(nothing)  the time to the first token of a long prompt: cold, from the server's own cache, and restored after a kill; metrics and page
//	twenty     conversations over one system prompt through four slots, with kills of server and front: the answers are those of the server alone
//	clients    the openai package and curl, streaming and not, with tools and JSON, cancelled: the same with the front and without
//	load       64 requests at a time, some cancelled in the middle: all others are answered, what the front has counted adds up, and neither goroutines, descriptors,
//	           threads, slot files nor memory grow
//	starts     front, server, or both are killed and started again many times: the first request is a hit each time
//	overhead   the next turn of a conversation whose tokens lie in the slot: with a front, without, and through a proxy that does nothing else
//	faults     slot files that are damaged on their way, another model under the same port, a server that hangs
//
// Each prints what it measured and ends with 1, and a sentence, if something is wrong. With -json the last line is one object. It fetches
// what it needs: tests/llama has the scripts. It must be run from the project's root.
package main
