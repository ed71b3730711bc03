//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"
)

// starts kills front and server N times, starts both again, and sends at once what a client sent when it went on with its conversation: agents repeat a
// 503 at once. It counts how often the first answer was a hit of at least nine tenths, and what X-Dormouse said of the others.
func (r *rig) starts(ctx context.Context, turn exchange, n int) (hits int, others map[string]int, err error) {
	if n == 0 {
		return 0, nil, nil
	}
	s, err := newStack(r.programs, filepath.Join(r.dir, "starts"))
	if err != nil {
		return 0, nil, err
	}
	r.stacks = append(r.stacks, s)
	if err := s.start(); err != nil {
		return 0, nil, err
	}
	if err := s.keeps(ctx); err != nil {
		return 0, nil, err
	}
	if _, err := first(ctx, s, turn); err != nil {
		return 0, nil, err
	}
	if err := s.stored(ctx); err != nil {
		return 0, nil, err
	}
	others = map[string]int{}
	for i := range n {
		if err := s.kill(ctx); err != nil {
			return hits, others, err
		}
		if err := s.start(); err != nil {
			return hits, others, err
		}
		x, err := first(ctx, s, turn)
		if err != nil {
			return hits, others, err
		}
		switch {
		case strings.HasPrefix(x.front, "hit") && x.cached*10 >= x.prompt*9:
			hits++
		case strings.HasPrefix(x.front, "hit"):
			others[fmt.Sprintf("hit, and the server reused %d of %d", x.cached, x.prompt)]++
		default:
			others[x.front]++
		}
		r.note("start %d of %d: %s: %d of %d tokens reused", i+1, n, x.front, x.cached, x.prompt)
	}
	return hits, others, s.kill(ctx)
}

// first sends a request until it is answered by anything but 503.
func first(ctx context.Context, s *stack, turn exchange) (exchange, error) {
	for end := time.Now().Add(3 * time.Minute); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url()+turn.path, bytes.NewReader(turn.body))
		if err != nil {
			return exchange{}, err
		}
		for _, name := range []string{"Content-Type", "User-Agent", "Authorization", "X-Api-Key", "Anthropic-Version"} {
			if v := turn.header.Get(name); v != "" {
				req.Header.Set(name, v)
			}
		}
		resp, err := local.Do(req)
		if err == nil {
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusServiceUnavailable {
				x := exchange{front: resp.Header.Get("X-Dormouse"), figures: figuresOf(body)}
				if err == nil && resp.StatusCode != http.StatusOK {
					err = fmt.Errorf("%s: %s: %s", turn.path, resp.Status, body)
				}
				return x, err
			}
		}
		if time.Now().After(end) {
			return exchange{}, fmt.Errorf("%s: no answer for three minutes: %w: %s", turn.path, err, s.lastWords())
		}
		select {
		case <-ctx.Done():
			return exchange{}, ctx.Err()
		case <-time.After(5 * time.Millisecond): // leaves the processor to the server
		}
	}
}
