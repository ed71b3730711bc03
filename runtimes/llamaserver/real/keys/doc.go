// Package keys has tests, before real servers, of what requests with one API key learn of those with another: nothing in slots, and nothing of where a prompt parted.
package keys
