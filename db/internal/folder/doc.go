// Package folder is a store's directory from outside: the names of its files, FORMAT, who may write there, whose files lie there, and the locks
// that keep processes apart. It opens no segment, log or index for use.
package folder
