// Package collide makes collisions of MurmurHash3 x64 128, for tests: two inputs of one length that have one hash, whatever
// the seed and whatever the bytes around them.
package collide
