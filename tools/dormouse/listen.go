package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"
)

// listen listens on host and port, or on a socket file, which is removed when the listener is closed.
func (o *options) listen(address string) (net.Listener, error) {
	if !strings.HasSuffix(address, ".sock") {
		l, err := net.Listen("tcp", address)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			err = fmt.Errorf("%w: is llama-server running already? Stop it, or choose another --port", err)
		case err != nil && o.listenOn != "":
			err = fmt.Errorf("--listen %q: %w; expected host and port, such as 127.0.0.1:8080, or the path of a socket file that ends in .sock", address, err)
		}
		return l, err
	}
	address, err := path("listen", address)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", address)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(address) {
		if err = os.Remove(address); err == nil {
			l, err = net.Listen("unix", address)
		}
	}
	switch {
	case errors.Is(err, syscall.EINVAL):
		err = fmt.Errorf("%w: the path of a socket file has some hundred bytes at most, this one has %d", err, len(address))
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("%w: another server answers there, or it is no socket: choose another path", err)
	}
	return l, err
}

// abandoned reports whether a socket file is left of a server that was killed.
func abandoned(file string) bool {
	if info, err := os.Lstat(file); err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := net.DialTimeout("unix", file, time.Second)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// attached is the address of a server that somebody else runs.
func (o *options) attached() (*url.URL, error) {
	base, err := url.Parse(strings.TrimSuffix(o.attach, "/"))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("--attach %q: expected an address such as http://127.0.0.1:8080", o.attach)
	}
	if o.slotDir == "" {
		return nil, errors.New("--attach needs --slot-dir, the folder of the server's --slot-save-path")
	}
	return base, nil
}

// reachTime is how long a server that somebody else runs has to say whether it is there.
const reachTime = 2 * time.Second

// reacher is what can ask a server whether it answers.
type reacher interface {
	Reach(context.Context, time.Duration) error
}

// unreached says that nobody answers where somebody else's server should be. Empty: somebody does.
func (o *options) unreached(ctx context.Context, front reacher) string {
	if o.attach == "" {
		return ""
	}
	if err := front.Reach(ctx, reachTime); err != nil {
		return fmt.Sprintf("nobody answers as llama-server at %s (%v)", o.attach, err)
	}
	return ""
}
