// Package direct has the memory that files are read into around the page cache, and keeps several such reads under way.
//
// It owns
//
//   - [Ring]: some megabytes in huge pages where the system has them, for two users at a time; given back when nobody has used it for a
//     while, and when the store is asked to make itself small;
//   - [Stream]: reads in an order, begun as far ahead as the ring has room, handed out in that order, by goroutines that do nothing else.
//
// It promises that memory and goroutines do not grow with what is read, and that no read is under way when Stop returns.
//
// It does not know what is read, nor from where.
package direct
