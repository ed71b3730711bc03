// Command filter measures whether a hierarchical Bloom filter is worth it: a coarse one over chunks of 1,024 tokens above a fine one over
// blocks, beside the one filter over openings and blocks that stores have. docs/filter.md has the figures and what follows from them.
//
//	go run ./tests/filter           a million blocks and the recorded traces: some minutes, 1 GB of disk
//	go run ./tests/filter -quick    under a minute, 50,000 blocks
//
// Every way to search answers the same prompts: nothing stored, all stored, stored up to somewhere in the middle. They take turns in one
// process, round by round, each with prompts of its own; medians are printed, and the medians of the rounds' ratios to the first way.
//
// It owns the two-level filter (filter.go), the searches (search.go), the stores and their prompts (store.go, load.go), and the rounds
// and tables (measure.go, tables.go). A store here is an index without segments: rows are no part of a search for full blocks.
//
// It promises that every answer is compared with the number of blocks that are stored.
package main
