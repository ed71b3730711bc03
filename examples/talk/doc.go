// Package talk joins the transformer of internal/tiny to a store: a turn of a conversation is looked up, restored as far as it
// is stored, computed from there, answered, and stored. The examples scopes and forget use it; copy it, and put your runtime
// where the tiny model is.
//
// It owns [Open] and [Talk.Say], and [Talk.Cold], which does the same without a store, so that a program can check what it claims.
package talk
