//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows
package main
import ("context";"io")
const childFlag = "-child"
func child(ctx context.Context, in io.Reader, out io.Writer) error { return nil }
func endless(ctx context.Context, s settings, out io.Writer) error { return nil }
func deletion(ctx context.Context, s settings, out io.Writer) error { return nil }
func needle(ctx context.Context, s settings, out io.Writer) error { return nil }
func kill(ctx context.Context, s settings, out io.Writer) error { return nil }
func figures(ctx context.Context, s settings, out io.Writer) error { return nil }
