// Package read brings stored rows back into a caller's memory: of a prefix that [prefix.Lookup] found, of one record, or as they lie in
// the file.
//
// It owns
//
//   - [Source.Restore]: the jobs of a restore, shared among the processors ([Workers]), layer by layer if somebody waits for layers;
//   - what of it is not in memory: read around the page cache while what came before is decoded, or asked for ahead
//     (coldfind.go decides, cold.go does it);
//   - the comparison of everything that a record says it is with what was looked for, before a row of it counts;
//   - states, zeroing, and reading without a copy ([Source.View]).
//
// It promises that a row is right or zero: what fails a check shortens the prefix, and is reported. A restored block costs no allocation.
//
// The caller holds a lease on what was found. This package knows the segments and the codecs; it does not know how the store is written.
package read
