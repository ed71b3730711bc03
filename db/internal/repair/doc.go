// Package repair saves what is sound of a damaged store in a new one: it opens the damaged one as a reader does, through a file system that goes
// on behind what cannot be read (fs.go), has package check say what is damaged, and copies what stands the comparison (copy.go). The damaged
// store is not changed.
package repair
