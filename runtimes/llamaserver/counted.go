package llamaserver

import (
	"context"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// maxCounted bounds for how many kinds of requests it is remembered that the server counts them as the front does.
const maxCounted = 64

// counts asks the server how many tokens a request has, where the front is not sure how the server renders it: a kind of requests is asked for once. What
// the server counts otherwise rests, as if it had computed it.
func (s *served) counts(ctx context.Context, req *request.Request, tokens int) error {
	if len(req.Unsure()) == 0 {
		return nil
	}
	kind := req.Kind()
	s.mu.Lock()
	known := s.counted[kind]
	s.mu.Unlock()
	if known {
		return nil
	}
	n, err := s.api.CountTokens(ctx, req)
	switch {
	case api.Unsupported(err): // this release counts nothing beforehand: what the slot has afterwards is compared, as always
	case api.RefusesBody(err):
		return req.Refused()
	case err != nil:
		return err
	case n != tokens:
		s.log.Warn("the server counts other tokens of such prompts than the front: they pass for a while", "kind", kind, "server", n, "front", tokens)
		s.mu.Lock()
		s.differ.Rest(kind)
		s.mu.Unlock()
		return req.Unlike()
	}
	s.mu.Lock()
	if len(s.counted) >= maxCounted {
		clear(s.counted)
	}
	s.counted[kind] = true
	s.mu.Unlock()
	return nil
}
