// Command times compares the doors to llama.cpp: Go, C++, Python and Java attach the same context to the same store and restore the same prompt, by turns.
//
//	go run ./tests/capi/times -cpp PROGRAM -python "python3 tests/capi/llama_times.py" -java "java -cp … io.github.dormousekv.sample.Door"
//
// Each door is a process of its own with its model loaded (llama_times.cpp, llama_times.py, Door.java, and this program). In each round each of them opens the store, attaches,
// restores, and evaluates the prompt's last token; the order goes round. It prints medians, and the median of the rounds' ratios to Go with the interval
// that holds it with 95 %. It asserts no time: only that all doors reuse as much and say the same token.
//
// tests/capi/run.sh runs it.
package main
