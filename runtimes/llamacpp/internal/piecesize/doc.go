// Package piecesize says how much of a state is built at a time.
package piecesize
