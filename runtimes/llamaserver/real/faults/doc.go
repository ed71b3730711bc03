// Package faults has tests, before real servers, of what goes wrong around a front: clients that leave, servers and stores that are away, hang or crash, streams that break off, and what waits meanwhile.
package faults
