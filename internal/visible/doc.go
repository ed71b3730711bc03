// Package visible keeps text that strangers wrote from commanding a terminal.
package visible
