// Kvdump looks into a Dormouse store: what is in it, whether every byte of it is as it was written, why a prompt was or was not
// reused. Only compact and delete change a store, and repair makes a new store of what is sound of an old one. inspect, explain and report
// also work while another process has the store open.
//
// Exit codes: 0 all is well, 1 damage was found, the work failed, or there was nothing to delete, 2 it was called wrongly (an unknown flag, no store in
// that directory, a store that another process has open, where a command needs it closed), 130 it was interrupted, and the store is whole.
//
// It uses db and db/admin, and nothing below them, and obs/page for its report; of internal, the tokenizer of GGUF files.
package main
