// Package folder is a store's directory from outside: the names of its files, FORMAT, who may write there, whether they are the
// store's or a stranger's, and the locks that keep processes apart. [HoldIndex] has the copy of index.db that a reader rests on. It opens no segment, log or index for use.
package folder
