// Package admin is what tools need of a store and programs that use one do not: it verifies and repairs stores, and lists what their files
// hold. kvdump is its first user. Nothing here is needed to put or to restore.
package admin
