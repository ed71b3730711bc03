// Package internal holds what no user should import: boot (which boot of the system this is), damage (how corruption is reported), vfs (the
// file-system seam), loc (the place of a record), version, memdir (folders of tests), gguf (a reader of model files), hashed (a runtime
// whose every wrong row changes the answer), and tiny (a transformer in plain Go).
package internal
