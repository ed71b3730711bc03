// Package weights knows which files a llama-server has loaded, and whether they are still those that were hashed.
//
// What a server computes belongs to the bytes that it has loaded, not to whatever lies at their paths now. A server that sleeps loads its files again,
// and files are replaced while it runs. [Files.Sound] compares their stamps, and looks at more only where a stamp changed: at what the server has mapped,
// or at all bytes.
//
// It promises that in doubt the answer is an error. It must not know slots.
package weights
