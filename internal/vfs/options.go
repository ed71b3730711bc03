package vfs

import (
	"fmt"
	"reflect"
	"sync"
)

// The options of segments, wal and index do not show the file system that they work on, which is the operating system's for everybody but
// this module. On sets it nevertheless.

var setters sync.Map // func(*T, FS) by the type of T

// Hide says how to set the file system of an options struct. Its package does so once.
func Hide[T any](set func(o *T, f FS)) { setters.Store(reflect.TypeFor[T](), set) }

// On returns o for another file system.
func On[T any](f FS, o T) T {
	set, ok := setters.Load(reflect.TypeFor[T]())
	if !ok {
		panic(fmt.Sprintf("vfs: %T has no file system", o))
	}
	set.(func(*T, FS))(&o, f)
	return o
}
