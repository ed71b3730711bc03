package chat

import (
	"errors"
	"fmt"
)

// Errors that callers ask for with errors.Is. What the store, the runtime or the context returns comes through as it is.
var (
	ErrOpen      = errors.New("chat: the conversation is open already")
	ErrClosed    = errors.New("chat: closed")
	ErrTurnOpen  = errors.New("chat: a turn is open: commit or abort it first")
	ErrTurnEnded = errors.New("chat: the turn has ended")
	ErrNoTurn    = errors.New("chat: no such turn")
	ErrTurnFull  = errors.New("chat: the turn has no room left: Reserve is used up")
	ErrFactsFull = errors.New("chat: no room for the fact")
	ErrTokenizer = errors.New("chat: the conversation was held with another tokenizer")
	ErrBranch    = errors.New("chat: the branch is gone")
	ErrOptions   = errors.New("chat: invalid options")
)

// TooLongError is returned when a turn cannot fit: nothing was evicted for it.
type TooLongError struct {
	Need int // tokens of the message and of the room for the answer
	Have int // tokens that turns may take
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("chat: the message and the room for its answer (Reserve) are %d tokens, and turns may take %d", e.Need, e.Have)
}
