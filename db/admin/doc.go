// Package admin is what tools need of a store and programs that use one do not: it verifies and repairs stores, and lists what their files
// hold. kvdump is its first user. Nothing here is needed to put or to restore.
//
// [FindNearest] says where a prompt parts from what is stored. It gives tokens of stored prompts: whoever calls it decides who sees them.
//
// Repair saves what is sound of a damaged store in a new one: it opens the damaged one as a reader does (repair_open.go), through a file
// system that goes on behind what cannot be read (repair_fs.go), has package check say what is damaged, and copies what stands the comparison
// (repair_copy.go). The damaged store is not changed.
package admin
