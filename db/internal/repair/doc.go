// Package repair saves what is sound of a damaged store: it recovers that in memory, from whatever can be read, and copies it into a new one. The
// damaged store is not changed. What is sound is for recovery.Salvage to say; expect.go says what should have been there, so that what is lost is named.
package repair
