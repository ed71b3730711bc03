// Package script runs what db/script_test.go calls scripts: laws of docs/reliability.md as text. A script uses what the store exports, on a disk
// that can crash. Nothing in the store knows of it.
package script
