// Command bench measures what Dormouse promises to be fast at, each figure beside its reference.
//
//	go run ./tests/bench            36 minutes, 10 GB of disk
//	go run ./tests/bench -quick     two to three minutes, smaller
//	go run ./tests/bench -only restore_warm,put -json
//	go run ./tests/bench -long -only open_1e7       an hour, 55 GB of disk
//	go run ./tests/bench -cost costs.json -draw docs
//
// A figure and its reference take turns in one process, round by round, so that what else the machine does meets both;
// medians are printed with the smallest and the largest. A ratio is the median of the rounds' ratios. The collector of
// garbage rests meanwhile, the caller's memory is touched beforehand, and the first round does not count: what is warm is
// warm for both. Where a figure says cold, the kernel was asked how much of the files was still in memory.
//
// It owns the figures (restore.go, cold.go, busy.go, put.go, cpu.go, power.go, match.go, bloom.go, open.go, huge.go, footprint.go, pressure.go,
// allocs.go, ttft.go), what prompts of models cost, with charts (cost.go),
// what they are divided by (reference.go), the rounds, and the output (report.go). What a figure's bar is stands beside it.
//
// It promises that restored rows are compared with what was stored, once, outside of the timed part; that what could not be
// measured is said; and that no bar fails the program: times depend on the machine.
//
// It must not use more of the database than its users can, but for the codecs of package quant and the Bloom filter of
// package index, which some figures are about, and the rows of index.db, which a reference is made of.
package main
