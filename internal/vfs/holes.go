package vfs

// Sparse is a File that can tell where its holes are. On a tmpfs a hole is filled as soon as it is read through a map: the
// space that was given back is taken again. It is told apart from File because most file systems need none of this.
type Sparse interface {
	// NextData returns the first stretch [data, hole) at or behind off that is not a hole; data is the file's size if there
	// is none. ok is false where that is unknown, or reading holes costs nothing.
	NextData(off int64) (data, hole int64, ok bool)
}
