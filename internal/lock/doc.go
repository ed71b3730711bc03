// Package lock has the locks of a store, each of a type that says where it comes in the one order in which they are taken. A test build
// with the tag lockorder panics where one is taken out of order; any other build has plain mutexes of the standard library.
package lock
