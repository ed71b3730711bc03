// Package page shows people what a store holds and what it is good for: live, as a page that a front mounts, and as a report, one file about a
// store that may be closed.
//
// It owns the drawing (assets: HTML, CSS and JavaScript by hand, nothing from elsewhere), [New], which serves it and keeps it up to date by
// server-sent events, [Draw], which makes an icicle of a store's prefix tree, and [WriteReport].
//
// It promises that nothing of a request is in it: no token, no text, no name of a ref, of a scope or of a conversation. What comes from a store
// or a front is text, never markup: the page's Content-Security-Policy runs nothing but its own files, and lets no string become HTML. A
// drawing takes bounded time and memory, whatever the store holds: at most [MaxBlocks] blocks of 64 bytes while it is made, 1,200 nodes or so
// to look at, and, of a page that is watched, at most a twentieth of one processor. While nobody looks, nothing is asked.
//
// It must not know which front it is mounted on. It uses db as a program does, and no library.
package page
