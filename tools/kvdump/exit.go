package main

import "errors"

// Exit codes.
const (
	exitOK          = 0
	exitDamage      = 1
	exitMisuse      = 2
	exitInterrupted = 130 // as shells say it of SIGINT
)

// errDamage says that a report was printed, and that it was not good.
var errDamage = errors.New("damage was found")

// errWork marks errors of the work itself, as opposed to how it was asked for.
type errWork struct{ error }

func (e errWork) Unwrap() error { return e.error }

// errMisuse marks errors of how a command was called that only the store could tell.
type errMisuse struct{ error }

// common are the flags that every command has.
type common struct {
	json      bool
	sharedDir bool
}
