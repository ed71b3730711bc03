// Package models has tests, before real servers, of a server whose files, adapters, rows or restores are not what they were: whatever is in doubt is not reused.
package models
