// Package causes says why two prompts of an agent parted, and what its user can do about it.
//
// It owns [Client], which names a program by the headers it sends, and [Of], which looks at the text on both sides of the place where two
// prompts parted and names a known cause with its cure.
//
// It promises that no cause is named in doubt: a pattern has to hold at the place itself and on both sides. Nothing of a text gets into a [Cause]: code and
// advice are words of this package.
//
// It must not know how prompts are stored, matched or shown.
package causes
