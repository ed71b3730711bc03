package vfs

// WriteBacker is a file of which what was written can be given to the disk ahead of a [File.Sync]: where two files are to be synced, what both
// wait for is then one commit of the file system's journal. Nothing is durable by that.
type WriteBacker interface {
	// WriteBack returns when the disk has what was written before. An error is one of those that a later Sync does not report any more.
	WriteBack() error
}

// WriteBack is f's, if it has one.
func WriteBack(f File) error {
	if w, ok := f.(WriteBacker); ok {
		return w.WriteBack()
	}
	return nil
}

// WriteBack implements [WriteBacker].
func (h *Handle) WriteBack() error {
	f, err := h.held()
	if err != nil {
		return err
	}
	return WriteBack(f)
}
