// Package budget counts what a store's files occupy, and says what fits: within its budget, within its number of blocks, on its file system.
package budget
