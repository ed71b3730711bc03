// Package write puts a caller's rows into the store, block after block.
//
// A put has four steps. [Put.Plan] works out which positions have rows. [Put.Known] skips the blocks that are stored. [Put.Block] decides
// what of a block is missing, and completes rows that begin inside of it with those of a stored block; its records are encoded and
// appended to a segment side by side. [Put.Publish] makes them visible, as one log frame and one version of the index, and takes out what
// they replace: poorer records, and partial blocks that a new block begins with.
//
// It promises that a block is published only below a stored parent, that what was deleted meanwhile does not come back in a copy, and that
// no record outlasts the put unnamed: what is not published is handed over to be destroyed.
//
// It owns [Store.ThinStates], too, by which a conversation keeps only its first and last states.
//
// Room is made by package space, and frames are logged by package commit.
package write
