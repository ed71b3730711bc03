// Command times compares the doors to llama.cpp: Go, C++, Python and Java attach the same context to the same store and restore the same prompt, by turns.
//
//	go run ./tests/capi/times -cpp PROGRAM -python "python3 tests/capi/llama_times.py" -java "java -cp … io.github.dormousekv.sample.Door"
//
// Each door is a process of its own with its model loaded (llama_times.cpp, llama_times.py, Door.java, and this program). In each round each of them opens the store, attaches,
// restores, and evaluates the prompt's last token; the order goes round. It prints medians, and the median of the rounds' ratios to Go with the interval
// that holds it with 95 %. It asserts no time: only that all doors reuse as much and say the same token.
//
//	go run ./tests/capi/times -rows -rows-c PROGRAM -rows-python "python3 tests/capi/rows_times.py" -rows-java "java -cp … io.github.dormousekv.RowsDoor"
//
// does the same for rows: package db and the others restore 28 MiB into memory of their own, stored as they are and as q8_0.
//
// tests/capi/run.sh runs both.
package main
