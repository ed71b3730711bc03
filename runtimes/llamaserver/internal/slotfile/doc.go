// Package slotfile makes the files through which rows go between this process and a llama-server: a [Folder], which is the server's --slot-save-path, and
// a [File] for each slot that is saved or restored.
//
// On Linux a file is a link to memory of this process, so that rows reach no disk. It promises that folders of processes that were killed are removed, and
// that a folder that somebody has removed is made again.
//
// It must not know what is in a slot file.
package slotfile
