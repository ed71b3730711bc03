// Package slots knows the slots of a llama-server: which request has which, what each holds, and what of that only the slot has.
//
// A [Table] is what the front believes. Whoever does something to slots takes the [Turn] first, so one thing happens at a time. A [Look] asks the server
// what its slots hold, and corrects the table.
//
// It must not know the store, nor slot files.
package slots
