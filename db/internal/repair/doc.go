// Package repair saves what is sound of a damaged store: it recovers that in memory, from whatever can be read, and copies it into a new one.
package repair
