// Package damage is the one way in which Dormouse says that bytes on disk are not what was written: the file, the
// offset, what was expected there and what was found.
package damage
