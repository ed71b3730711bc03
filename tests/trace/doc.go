// Package trace holds recorded and generated prompt traffic and an independent simulation of leaf-first eviction, so
// that an eviction policy can be measured before and beside the database that uses it.
//
// It owns
//
//   - [Load] and [LoadSynthetic]: the Mooncake traces, 12,031 requests of a public chat service and 3,993 built from public
//     data sets, embedded in the package;
//   - [Chat] and [Phone]: generated traffic, the same for the same seed on every machine;
//   - [Simulation.Run]: a prefix tree of blocks with a capacity, and the [Policy] that says which leaf goes first;
//   - the policies of the table in docs/eviction.md.
//
// It promises that a simulation is deterministic: the same requests, capacity and policy give the same figures.
//
// It must not know the database: it imports none of its packages, so that the two can be held against each other.
package trace
