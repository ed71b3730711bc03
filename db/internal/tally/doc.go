// Package tally counts what a store did, and how long that took.
package tally
