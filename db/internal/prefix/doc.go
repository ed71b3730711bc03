// Package prefix finds the longest stored prefix of a prompt, to the token.
//
// A prompt is a chain of blocks, and a block is stored only below a stored parent (closure). So a binary search finds how many full
// blocks are stored; the stored block that shares most tokens with what follows gives its first rows. Then each group of the model
// says how much of that it can use: a window needs the last rows before the end, a state is valid at one position only.
//
// It owns
//
//   - [Lookup]: one search and what it found, with the reason why it is no longer ([kv.Reason]);
//   - [Store.Nearest]: where a prompt parts from the stored prompt that has most tokens in common with it;
//   - [StoredPrefixes]: the stored blocks that a longer block begins with, among them partial blocks: those that are shorter than
//     they could be, where a prompt ended.
//
// It promises that a lookup reads O(log blocks) index entries and one or two records' tokens, and costs no allocation once its pool is
// warm. It changes nothing. A prefix that it found is as good as the index says: whoever hands out rows compares the records.
//
// The caller holds a lease on the segments while it uses a Lookup, and keeps what was found from being evicted; this package knows
// neither leases, nor the log, nor the store's engine.
package prefix
