package piecesize

// Bytes is how much of a state is built at a time where it can be handed over in pieces. Larger ones are no faster. A variable for
// tests, which Set.
var Bytes = 8 << 20

// Set changes it until the function that it returns is called.
func Set(n int) (undo func()) {
	old := Bytes
	Bytes = n
	return func() { Bytes = old }
}
