// Package boot names the running system: after another boot, bytes that were not synced may be gone.
package boot
