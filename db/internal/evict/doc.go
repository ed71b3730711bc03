// Package evict takes the coldest blocks out of a store: leaves of the prefix tree that no match rests on and no ref pins.
package evict
