// Package boot names the running system. What was written to a file in one boot is in memory in the order in which it was written, until the
// system ends or the volume goes. So it is evidence of damage, and no proof that something is there.
package boot
