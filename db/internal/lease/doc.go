// Package lease keeps what somebody uses from being taken away.
//
// It owns
//
//   - [Pins]: which blocks something rests on, and which are on their way out. Whoever takes a block out asks first; nobody comes to rest
//     on one that is going;
//   - [Held]: a found prefix with a lease on its bytes and pins on the blocks that it rests on.
//
// It promises that what a Held found stays stored and readable until Drop, whatever is evicted meanwhile. A deletion takes it out of the
// index, and leaves its bytes until then.
//
// It does not know who evicts, or why.
package lease
