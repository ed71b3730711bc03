// Package filter keeps the Bloom filter of an open store: read from its file when the store is already in use, added to before a block is published,
// built anew in the background when it is lost, too full, or after many removals.
package filter
