// Package tests holds what crosses packages, a folder each:
//
//   - replay: recorded traffic through a store, beside an independent simulation;
//   - trace: the traffic and that simulation;
//   - filter: one Bloom filter beside two levels of them, a program and a test: docs/filter.md;
//   - llama: the script that fetches stock llama.cpp and a real model;
//   - turns: a chat with a real model, whose processes are killed in the middle of turns; a program and a test;
//   - llamaserver: dormouse serve as a process before a real llama-server, compared with that server alone; a program and a test;
//   - clients: the programs that people put before a llama-server, from npm and PyPI, killed, resumed and in another folder; a program;
//   - crash: a child works a store hard and is killed, or its disk loses power; a program and a test;
//   - filesystems: the same child killed on overlayfs, FUSE, NTFS and exFAT; a script;
//   - damage: every bit flipped, every file cut, replaced, linked or unreadable; files cut under a running store;
//   - full: a disk that others fill, at random moments;
//   - together: many goroutines at once, and whether what they saw could have happened one after the other;
//   - quality: what a codec costs real models: docs/llamacpp.md;
//   - density: what a compressor behind a codec would save of real rows: docs/performance.md;
//   - bench: the figures of docs/performance.md, each beside its reference in the same run;
//   - peers: other stores doing the same job, a module of its own.
package tests
