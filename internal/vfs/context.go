package vfs

import "context"

type contextKey struct{}

// With returns a context with which the store is opened, and used, on f: tests put a disk that fails underneath.
func With(ctx context.Context, f FS) context.Context { return context.WithValue(ctx, contextKey{}, f) }

// From is the file system of a context: the operating system's, unless it was made by With.
func From(ctx context.Context) FS {
	if f, ok := ctx.Value(contextKey{}).(FS); ok {
		return f
	}
	return OS
}
