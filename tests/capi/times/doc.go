// Command times compares the doors to llama.cpp: Go, C++ and Python attach the same context to the same store and restore the same prompt, by turns.
//
//	go run ./tests/capi/times -cpp PROGRAM -python "python3 tests/capi/llama_times.py"
//
// Each door is a process of its own with its model loaded (llama_times.cpp, llama_times.py, and this program). In each round each of them opens the store, attaches,
// restores, and evaluates the prompt's last token; the order goes round. It prints medians, and the median of the rounds' ratios to Go with the interval
// that holds it with 95 %. It asserts no time: only that all doors reuse as much and say the same token.
//
// tests/capi/run.sh runs it.
package main
