// Package remove deletes for good: a prefix with all that continues it, a scope, a version of a model.
package remove
