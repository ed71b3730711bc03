package llamacpp

// SetPieceBytes sets how large the pieces of a restore are, until the function that it returns is called.
func SetPieceBytes(n int) (undo func()) {
	old := pieceBytes
	pieceBytes = n
	return func() { pieceBytes = old }
}
